"""The log: one JSON object per line on stderr. Configured here and nowhere else."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final


@contextmanager
def _without_rich() -> Iterator[None]:
    """Have structlog do without rich: it would import it for colours that our lines never have."""
    there = sys.modules.get("rich")
    sys.modules["rich"] = None  # type: ignore[assignment]  # what import takes for "not installed"
    try:
        yield
    finally:
        del sys.modules["rich"]
        if there is not None:
            sys.modules["rich"] = there


with _without_rich():
    import structlog

LEVELS: Final = ("debug", "info", "warning", "error")
_CHATTY: Final = (
    "sqlalchemy", "botocore", "boto3", "urllib3", "alembic", "mcp", "client", "uvicorn",
    "sse_starlette",
)  # fmt: skip


def logger(name: str) -> structlog.typing.FilteringBoundLogger:
    """Return a logger; it becomes what `configure` says when it is first used."""
    bound: structlog.typing.FilteringBoundLogger = structlog.get_logger(name)
    return bound


def configure(level: str) -> None:
    """Log from this level on; what libraries say from ``warning`` on."""
    number = getattr(logging, level.upper())
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(default=str),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=lambda *_: _Lines(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter())
    logging.basicConfig(level=number, handlers=[handler], force=True)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(number, logging.WARNING))
    # A host that closes our stderr must not take us down with it.
    logging.raiseExceptions = False


class _Lines:
    """Where structlog's lines go."""

    def msg(self, line: str) -> None:
        try:
            sys.stderr.write(line + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            pass

    debug = info = warning = error = critical = exception = log = msg


class _JsonFormatter(logging.Formatter):
    """Lines of the standard library's loggers, in the same shape."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "event": record.getMessage(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "timestamp": datetime.fromtimestamp(record.created, UTC)
            .isoformat()
            .replace("+00:00", "Z"),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)
