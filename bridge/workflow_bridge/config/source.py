"""One YAML file → plain data that knows where each value stands.

The data is JSON: text, numbers, booleans, null, lists and mappings with text for keys. Words are
read as YAML 1.2 reads them, so that ``no`` and ``on`` are text and a date is text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from workflow_bridge.config.document import Document
from workflow_bridge.config.issues import Issue
from workflow_bridge.config.values import TAG, Excess, Reading

_LARGEST_FILE_BYTES = 4_000_000


class _Unreadable(Exception):
    """The file gives no YAML; line and column count from 1, and are None for all of it."""

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column


def read_document(file: Path, env: Mapping[str, str]) -> Document:
    """Read one file. Whatever is wrong with it is in ``issues``; raises nothing."""
    document = Document(file)
    try:
        document.data = Reading(document, env).value(_compose(_read_text(file)), ())
    except _Unreadable as error:
        document.issues.append(Issue(file, error.line, error.column, "", error.message))
    except Excess as error:
        document.data = None
        line, column = error.mark.line, error.mark.column
        document.issues.append(Issue(file, line, column, "", error.message))
    return document


def _read_text(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            data = stream.read(_LARGEST_FILE_BYTES + 1)
    except FileNotFoundError:
        raise _Unreadable("there is no such file") from None
    except IsADirectoryError:
        raise _Unreadable("is a folder; name the YAML file in it") from None
    except PermissionError:
        raise _Unreadable("may not be read by this user; check its permissions") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise _Unreadable(f"cannot be read: {reason or 'not a usable file name'}") from None
    if len(data) > _LARGEST_FILE_BYTES:
        raise _Unreadable(f"is longer than {_LARGEST_FILE_BYTES:,} bytes; split it with include")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, column = _place(data, b"\n", error.start)
        raise _Unreadable("is not UTF-8; save it as UTF-8", line, column) from None


def _place(text: Any, newline: Any, position: int) -> tuple[int, int]:
    return text.count(newline, 0, position) + 1, position - text.rfind(newline, 0, position)


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Composes nodes; only the words of YAML 1.2's core schema mean more than text."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


for _kind, _pattern, _first in (
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("null", r"(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("int", r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?$",
        "-+.0123456789",
    ),
    ("merge", r"<<$", "<"),
):
    _Loader.add_implicit_resolver(TAG + _kind, re.compile(_pattern), list(_first))


def _compose(text: str) -> yaml.Node:
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = (mark.line + 1, mark.column + 1) if mark else ()
        lines = text.splitlines()
        line = lines[mark.line] if mark and mark.line < len(lines) else ""
        raise _Unreadable(f"is not valid YAML: {_why(error, line)}", *place) from None
    except yaml.reader.ReaderError as error:
        message = "is not valid YAML: a control character must be written as an escape in quotes"
        raise _Unreadable(message, *_place(text, "\n", error.position)) from None
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError):
        raise _Unreadable("is not valid YAML") from None
    if node is None:
        raise _Unreadable("is empty; it needs `backends`", 1, 1)
    return node


def _why(error: yaml.MarkedYAMLError, line: str) -> str:
    words = " ".join(part for part in (error.context, error.problem) if part)
    if "cannot start any token" in words:
        return f"{words}: put the text in quotes"
    if "flow" in words and "${" in line:
        return f"{words}: inside braces and brackets ${{…}} needs quotes"
    return words or "it cannot be parsed"
