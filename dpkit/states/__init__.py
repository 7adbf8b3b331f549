"""What keeps a promise between one release and the next: runs, what states keep, and their files."""

from dpkit.states.run import Run, RunStopped, Unrepeatable

__all__ = ["Run", "RunStopped", "Unrepeatable"]
