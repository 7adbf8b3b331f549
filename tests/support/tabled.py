"""``tabled``: as ``pytest.mark.parametrize``, in one test.

Setting up, reporting and sending a test takes longer than a refusal does. All rows are tried, whatever the others do,
and each that fails is named. For rows that leave no trace in a fixture.
"""

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import pytest


def tabled(names: str | tuple[str, ...], values: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    names = tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else names
    table = [row if len(names) > 1 else (row,) for row in values]
    if not table:
        raise ValueError(f"{names} must have at least one row")

    def in_one(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)

        @wraps(test)
        def tried(**known: Any) -> None:
            failed: list[BaseException] = []
            for row in table:
                try:
                    test(**known, **dict(zip(names, row, strict=True)))
                except pytest.skip.Exception:
                    continue
                except (Exception, BaseExceptionGroup, pytest.fail.Exception) as error:
                    error.add_note(f"in the row {', '.join(f'{n}={v!r}' for n, v in zip(names, row, strict=True))}")
                    failed.append(error)
            if failed:
                raise BaseExceptionGroup(f"{len(failed)} of {len(table)} rows", failed)

        kept = [parameter for name, parameter in signature.parameters.items() if name not in names]
        tried.__signature__ = signature.replace(parameters=kept)
        return tried

    return in_one
