"""The command ``dpkit``; also ``python -m dpkit``."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    try:  # an interrupt is told from the first import on
        from dpkit.cli import app
        from dpkit.cli.options import encodable_output
    except KeyboardInterrupt:
        print("dpkit: interrupted", file=sys.stderr)
        sys.exit(130)
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit(f'the command needs {error.name}: python -m pip install "dpkit[commands]"')
    encodable_output()
    app(prog_name="dpkit")


if __name__ == "__main__":
    main()
