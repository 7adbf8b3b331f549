"""What keeps a promise between one release and the next: runs, what states keep, their files, and who took part."""

from dpkit.states.run import Run, RunStopped, Unrepeatable

__all__ = ["Run", "RunStopped", "Unrepeatable"]
