"""The command line: ``dpbandits`` or ``python -m dpbandits``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    try:  # an interrupt is told from the first import on
        from dpbandits.cli import app
        from dpkit.cli.options import encodable_output
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit(f'error: the command line needs {error.name}: python -m pip install "dpkit[cli]"')
    encodable_output()
    app()


if __name__ == "__main__":
    main()
