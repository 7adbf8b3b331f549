"""The command ``dpkit`` in this process, and its exit status."""

from typer.testing import CliRunner

from dpkit.cli import app


def run(*arguments: object, status: int = 0, columns: int = 200) -> str:
    """What it prints."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": str(columns)})
    assert result.exit_code == status, result.output
    return result.output
