"""How a command ends where it refuses: one line in the words of its options, and exit code 2."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand

__all__ = ["Command", "fail"]


class Command(TyperCommand):
    """A command that ends with one line where a value is wrong, and at Ctrl-C."""

    def invoke(self, ctx: Any) -> Any:
        """Run it."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            fail("interrupted", 130)
        except Exception as error:
            from accounting import BudgetExceeded
            from dpkit.cli.options import in_options

            if not isinstance(error, (BudgetExceeded, ImportError, OSError, ValueError)):
                raise
            message = "; ".join([str(error), *getattr(error, "__notes__", [])])
            fail(in_options(message, self.params, ctx.params), 2)


def fail(message: str, code: int) -> NoReturn:
    """End the process with a line: 2 is an error, 130 an interrupt."""
    typer.echo(f"{'error: ' if code == 2 else ''}{' '.join(message.split())}", err=True)
    sys.exit(code)
