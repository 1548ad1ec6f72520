from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflow_bridge.config import parse_duration, parse_rate, parse_size
from workflow_bridge.config.issues import Unfit
from workflow_bridge.config.units import format_duration, format_rate, format_size


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1ms", 1),
        ("250ms", 250),
        ("5s", 5_000),
        ("0.5s", 500),
        ("15m", 900_000),
        ("1.5h", 5_400_000),
        ("1 d", 86_400_000),
        ("3650d", 315_360_000_000),
    ],
)
def test_durations_have_units(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == timedelta(milliseconds=milliseconds)


@pytest.mark.parametrize(
    "value",
    [
        *("", "5", "s", "5S", "5sec", "5 min", "-5s", "+5s", "5s5", "1h30m", "5e3s", "0s", "0.1ms"),
        *("\u0665s", "5s\n", " 5s", "5  s", "3651d", "9999999999s", "5.s", ".5s", "PT5S", "inf s"),
        *(5, 5.0, True, None, [], {}),
    ],
)
def test_what_is_no_duration_is_refused(value: object) -> None:
    with pytest.raises(Unfit):
        parse_duration(value)


@pytest.mark.parametrize(
    ("text", "size"),
    [("1B", 1), ("100KB", 100_000), ("1.5KB", 1_500), ("1KiB", 1_024), ("2MiB", 2_097_152)],
)
def test_sizes_have_units(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("value", ["", "100", "100kb", "0B", "1.5B", "-1KB", "1GB", 100, False])
def test_what_is_no_size_is_refused(value: object) -> None:
    with pytest.raises(Unfit):
        parse_size(value)


@pytest.mark.parametrize(
    ("text", "rate"), [("10/s", 10.0), ("600/min", 10.0), ("0.5/s", 0.5), ("36 / h", 0.01)]
)
def test_rates_have_units(text: str, rate: float) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("value", ["", "10", "10/", "10/m", "0/s", "-1/s", "10s", "1/0s", 10, None])
def test_what_is_no_rate_is_refused(value: object) -> None:
    with pytest.raises(Unfit):
        parse_rate(value)


@given(st.integers(1, 315_360_000_000))
def test_a_duration_reads_back_as_it_was_written(milliseconds: int) -> None:
    duration = timedelta(milliseconds=milliseconds)
    if milliseconds < 10**9 or milliseconds % 1000 == 0:
        assert parse_duration(format_duration(duration)) == duration


@pytest.mark.parametrize(
    ("size", "text"), [(1, "1B"), (100_000, "100KB"), (1_048_576, "1MiB"), (1_500, "1500B")]
)
def test_a_size_is_written_in_its_largest_whole_unit(size: int, text: str) -> None:
    assert format_size(size) == text
    assert parse_size(text) == size


@pytest.mark.parametrize(("rate", "text"), [(10.0, "10/s"), (2.5, "2.5/s"), (0.5, "30/min")])
def test_a_rate_reads_back_as_it_was_written(rate: float, text: str) -> None:
    assert format_rate(rate) == text
    assert parse_rate(text) == rate
