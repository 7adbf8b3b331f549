"""How a command ends where it refuses: one line in the words of its options, and exit code 2; 130 at an interrupt."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

__all__ = ["Command", "Commands", "fail"]


def fail(message: str, code: int) -> NoReturn:
    """End the process with a line: 2 is an error, 130 an interrupt."""
    typer.echo(f"{'error: ' if code == 2 else ''}{' '.join(message.split())}", err=True)
    sys.exit(code)


class Command(TyperCommand):
    """A command that ends with one line where a value is wrong, and at Ctrl-C."""

    def invoke(self, ctx: Any) -> Any:
        """Run it."""
        from dpkit.cli.options import plain_warnings

        try:
            with plain_warnings(""):
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


class Commands(TyperGroup):
    """All commands: what cannot be read ends in the same way."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run one."""
        kwargs["standalone_mode"] = False
        try:
            sys.exit(super().main(*args, **kwargs))
        except (KeyboardInterrupt, typer.Abort):
            fail("interrupted", 130)
        except Exception as error:
            # typer's own complaints (an unknown option, a word for a number) know how to say themselves
            if not hasattr(error, "format_message"):
                raise
            context = getattr(error, "ctx", None)
            way = "" if context is None else f" Try '{context.command_path} --help'."
            fail(error.format_message().removesuffix(".") + "." + way, 2)
