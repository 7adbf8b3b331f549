"""A progress bar on the standard error stream."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator

__all__ = ["progress_bar"]


@contextlib.contextmanager
def progress_bar(total: int, title: str, wanted: bool) -> Iterator[Callable[[int], None]]:
    """A function to be told how much more is done, shown on a terminal if it is wanted and ``rich`` is installed."""
    if not (wanted and sys.stderr.isatty() and importlib.util.find_spec("rich")):
        yield lambda more: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(title, total=total)

    def tick(more: int) -> None:
        # started late: the bar has a thread, and processes should be forked before there are threads
        bar.start()
        bar.advance(task, more)

    try:
        yield tick
    finally:
        bar.stop()
