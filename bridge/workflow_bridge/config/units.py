"""Durations, sizes and rates: text with units in YAML, plain values inside.

A bare number is never accepted: what unit it would have is what people get wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from fractions import Fraction
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, WithJsonSchema

from workflow_bridge.config.issues import Unfit

_MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "KiB": 2**10, "MiB": 2**20}
_SECONDS = {"s": 1, "min": 60, "h": 3_600}

_NUMBER = r"[0-9]{1,9}(?:\.[0-9]{1,6})?"
_QUANTITY = re.compile(rf"({_NUMBER}) ?([A-Za-z]*)")
_RATE = re.compile(rf"({_NUMBER}) ?(?:/ ?([A-Za-z]*))?")

_LONGEST = timedelta(days=3650)


def parse_duration(value: object) -> timedelta:
    """Return the duration that ``5s``, ``250ms`` or ``1.5h`` means: whole milliseconds, 1 or more.

    Raises `Unfit`.
    """
    if isinstance(value, timedelta):
        return value
    number, unit = _quantity(value, "a duration", "5s or 500ms", ("s", "ms"), _QUANTITY)
    milliseconds = number * _known(unit, _MILLISECONDS, "a duration")
    if milliseconds.denominator != 1 or milliseconds < 1:
        raise _unfit(value, "must be at least 1ms, in whole milliseconds")
    if milliseconds > _LONGEST / timedelta(milliseconds=1):
        raise _unfit(value, "must be at most 3650d")
    return timedelta(milliseconds=int(milliseconds))


def parse_size(value: object) -> int:
    """Return the bytes that ``100KB`` (1000 each) or ``1MiB`` (1024²) means; 1 or more.

    Raises `Unfit`.
    """
    number, unit = _quantity(value, "a size", "100KB or 1MB", ("KB", "MB"), _QUANTITY)
    size = number * _known(unit, _BYTES, "a size")
    if size.denominator != 1 or size < 1:
        raise _unfit(value, "must be at least 1B, in whole bytes")
    return int(size)


def parse_rate(value: object) -> float:
    """Return the calls per second that ``10/s`` or ``600/min`` means; above 0.

    Raises `Unfit`.
    """
    number, unit = _quantity(value, "a rate", "10/s or 600/min", ("/s", "/min"), _RATE)
    rate = number / _known(unit, _SECONDS, "a rate", mark="/")
    if rate <= 0:
        raise _unfit(value, "must be above 0")
    return float(rate)


def at_least(smallest: str) -> AfterValidator:
    """Return what refuses durations and sizes below ``smallest``, given as in YAML."""

    def check(value: timedelta | int) -> timedelta | int:
        parse = parse_duration if isinstance(value, timedelta) else parse_size
        if value < parse(smallest):  # type: ignore[operator]
            message = f"must be at least {smallest}"
            raise Unfit(message, blind=message)
        return value

    return AfterValidator(check)


def format_duration(duration: timedelta) -> str:
    """Return the duration as it would be written in YAML: `parse_duration` reads it back."""
    milliseconds = duration // timedelta(milliseconds=1)
    for unit, size in reversed(_MILLISECONDS.items()):
        if milliseconds % size == 0 and milliseconds:
            return f"{milliseconds // size}{unit}"
    return "0s"


def format_size(size: int) -> str:
    """Return the size as it would be written in YAML."""
    for unit in ("MiB", "MB", "KiB", "KB"):
        if size and size % _BYTES[unit] == 0:
            return f"{size // _BYTES[unit]}{unit}"
    return f"{size}B"


def format_rate(per_second: float) -> str:
    """Return the rate as it would be written in YAML."""
    return f"{per_second:g}/s" if per_second >= 1 else f"{per_second * 60:g}/min"


def _quantity(
    value: object, noun: str, example: str, units: tuple[str, str], pattern: re.Pattern[str]
) -> tuple[Fraction, str]:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise Unfit(f"must be {noun} such as {example}", blind=f"must be {noun} such as {example}")
    match = pattern.fullmatch(str(value))
    if match is None:
        raise _unfit(value, f"is not {noun}: say {example}")
    number, unit = match.group(1), match.group(2) or ""
    if not unit:
        raise Unfit(
            f"{str(value)!r} needs a unit: say {number}{units[0]} or {number}{units[1]}",
            blind=f"needs a unit, such as {example}",
        )
    return Fraction(number), unit


def _known(unit: str, units: Mapping[str, int], noun: str, *, mark: str = "") -> int:
    if unit not in units:
        *most, last = (mark + name for name in units)
        known = f"the units of {noun} are {', '.join(most)} and {last}"
        raise Unfit(f"unknown unit {mark + unit!r}: {known}", blind=f"unknown unit: {known}")
    return units[unit]


def _unfit(value: object, reason: str) -> Unfit:
    return Unfit(f"{str(value)[:80]!r} {reason}", blind=reason)


def _schema(pattern: str, *examples: str) -> WithJsonSchema:
    schema: dict[str, Any] = {"type": "string", "pattern": pattern, "examples": list(examples)}
    return WithJsonSchema(schema)


Duration: TypeAlias = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration),
    _schema(rf"^{_NUMBER} ?(ms|s|m|h|d)$", "5s", "15m", "1d"),
]
Size: TypeAlias = Annotated[
    int,
    BeforeValidator(parse_size),
    PlainSerializer(format_size),
    _schema(rf"^{_NUMBER} ?(B|KB|MB|KiB|MiB)$", "100KB", "1MB"),
]
PerSecond: TypeAlias = Annotated[
    float,
    BeforeValidator(parse_rate),
    PlainSerializer(format_rate),
    _schema(rf"^{_NUMBER} ?/ ?(s|min|h)$", "10/s", "600/min"),
]
