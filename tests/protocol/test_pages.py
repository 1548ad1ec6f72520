"""Long texts in pages, by themselves."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflow_bridge.protocol.pages import PAGE, in_pages, page, text_of

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@given(TEXTS, st.integers(1, 12), st.none() | st.integers(1, 9))
def test_pages_end_and_make_the_text_again(text: str, most_bytes: int, most: int | None) -> None:
    gathered, offset = "", 0
    while True:
        shown = page(text, offset, most_bytes=most_bytes, most=most)
        assert len(shown.text.encode()) <= max(most_bytes, 4)
        assert most is None or len(shown.text) <= most
        gathered += shown.text
        if shown.next_offset is None:
            break
        assert shown.next_offset > offset
        offset = shown.next_offset
    assert gathered == text


@pytest.mark.parametrize("offset", [3, 4, 10**30])
def test_beyond_the_end_there_is_nothing_more(offset: int) -> None:
    shown = page("abc", offset, most_bytes=10)
    assert (shown.text, shown.next_offset, shown.offset) == ("", None, 3)


def result(*texts: str, **more: Any) -> dict[str, Any]:
    blocks = [{"type": "text", "text": text} for text in texts]
    return {"content": blocks, "isError": False, "structuredContent": {"x": 1}} | more


@pytest.mark.case("R10")
def test_what_fits_is_left_as_it_is() -> None:
    short = result("a", "b", _meta={"k": "v"})
    assert in_pages(short, "t", most_bytes=3) is short
    assert text_of(short) == "a\nb"


@pytest.mark.case("R10")
def test_what_does_not_fit_keeps_its_meaning() -> None:
    long = result("a" * 5000, isError=True, _meta={"k": "v"})
    paged = in_pages(long, "t", most_bytes=1000)
    assert paged["isError"] is True
    assert paged["_meta"]["k"] == "v"
    assert paged["_meta"][PAGE]["totalCharacters"] == 5000
    assert "structuredContent" not in paged
    kept = in_pages(long, "t", most_bytes=1000, keep_structure=True)
    assert kept["structuredContent"] == {"x": 1}
