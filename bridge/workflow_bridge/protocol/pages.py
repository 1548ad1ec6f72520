"""Texts too long for one answer, in pages (R10). Pure.

Pages are counted in characters, which is what clients see; what bounds one is bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

PAGE: Final = "workflow-bridge/page"
"""In `_meta` of an answer that holds a part of the text: which."""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a text, and where it is in the whole."""

    text: str
    offset: int
    total: int

    @property
    def end(self) -> int:
        return self.offset + len(self.text)

    @property
    def next_offset(self) -> int | None:
        """Where the next page begins; None on the last."""
        return self.end if self.end < self.total else None


def page(text: str, offset: int, *, most_bytes: int, most: int | None = None) -> Page:
    """Return the part of a text that begins at ``offset``: at most so many bytes and characters."""
    rest = text[offset : offset + most_bytes]
    if most is not None:
        rest = rest[:most]
    fitting = rest.encode()[:most_bytes].decode("utf-8", "ignore")
    # A character larger than the page: never stand still.
    return Page(fitting or rest[:1], min(offset, len(text)), len(text))


def text_of(result: dict[str, Any]) -> str:
    """Return the whole text content of a `CallToolResult`."""
    return "\n".join(block["text"] for block in result["content"] if block["type"] == "text")


def in_pages(
    result: dict[str, Any],
    task_id: str,
    *,
    most_bytes: int,
    offset: int = 0,
    most: int | None = None,
    keep_structure: bool = False,
) -> dict[str, Any]:
    """Return a result as it is if all of it is asked for and its text fits, else a page of it.

    A page says how to get the next one. It has no ``structuredContent``, which would be the whole
    once more, unless ``keep_structure``. What is no text comes with the first page.
    """
    text = text_of(result)
    if offset == 0 and most is None and len(text.encode()) <= most_bytes:
        return result
    note = _note(task_id, len(text), len(text), len(text))
    shown = page(text, offset, most_bytes=max(1, most_bytes - len(note.encode())), most=most)
    told = shown.text
    if shown.next_offset is not None:
        told += _note(task_id, shown.offset, shown.end, shown.total)
    elif offset >= shown.total > 0:
        told = f"(there is nothing at {offset}: the text has {shown.total} characters)"
    blocks = [block for block in result["content"] if block["type"] != "text" and offset == 0]
    place = {
        "taskId": task_id,
        "offset": shown.offset,
        "nextOffset": shown.next_offset,
        "totalCharacters": shown.total,
    }
    paged: dict[str, Any] = {
        "_meta": {**result.get("_meta", {}), PAGE: place},
        "content": [{"text": told, "type": "text"}, *blocks],
        "isError": result["isError"],
    }
    if keep_structure and "structuredContent" in result:
        paged["structuredContent"] = result["structuredContent"]
    return paged


def _note(task_id: str, start: int, end: int, total: int) -> str:
    return (
        f"\n… (characters {start} to {end} of {total}; "
        f"for more: task_result with task_id {task_id} and offset {end})"
    )
