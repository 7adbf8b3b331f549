"""Words that people give and others read: what may be recorded, and how it is shown."""

from __future__ import annotations

__all__ = ["check_text", "printable"]


def check_text(name: str, value: object, *, empty: bool = True) -> str:
    """``value``, if it is a string that every reader can print: no half of a surrogate pair stands alone."""
    if not isinstance(value, str) or not (value or empty):
        raise TypeError(f"{name} must be a {'' if empty else 'nonempty '}string, got {name}={value!r}")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError(f"{name} must not hold lone surrogates, got {name}={value!r}")
    return value


def printable(text: str) -> str:
    r"""The text with everything escaped that moves a cursor, turns the writing around, or is not seen.

    Examples
    --------
    >>> print(printable("count\x1b[2J of\nvisits"))
    count\x1b[2J of\nvisits
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
