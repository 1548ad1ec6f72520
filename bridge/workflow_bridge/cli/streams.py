"""stdout and stderr that may be closed, full, or left by their reader: never a command's end.

What cannot be written is dropped, so that a command carries on and keeps its exit code; what is
wrong with a stream is told once, at the end.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from typing_extensions import Buffer

_closed: Final[set[str]] = set()
"""The streams that were closed when we started."""


class _Lenient(io.FileIO):
    """A file descriptor that swallows what can no longer be written."""

    failure: OSError | None = None

    def write(self, data: Buffer, /) -> int | None:  # type: ignore[override]
        if self.failure is None:
            try:
                return super().write(data)
            except OSError as exc:
                self.failure = exc
        return memoryview(data).nbytes


def prepare() -> None:
    """Make the standard streams safe to use; the first thing that the command does."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream: TextIO | None = getattr(sys, name)
        if stream is None:
            # It takes the lowest free number, which is the one that is missing: no file or socket
            # of ours may get it. Our children's, too.
            null = open(os.devnull, mode, encoding="utf-8")  # noqa: PTH123, SIM115
            os.set_inheritable(null.fileno(), True)
            setattr(sys, name, null)
            _closed.add(name)
        elif mode == "w":
            setattr(sys, name, _lenient(stream))


def was_closed(name: str) -> bool:
    """Tell whether a stream was closed when we started."""
    return name in _closed


def failure() -> str | None:
    """Write what is left to stdout; return why that, or anything before it, was impossible.

    That its reader has left is no failure: it had what it wanted.
    """
    sys.stdout.flush()
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    failed = raw.failure if isinstance(raw, _Lenient) else None
    if failed is None or isinstance(failed, BrokenPipeError):
        return None
    return failed.strerror or str(failed)


def _lenient(stream: TextIO) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Lenient(stream.fileno(), "wb", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering or stream.write_through,
    )
