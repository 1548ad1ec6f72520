"""What `database` may say. No message repeats it: it may hold a password."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from workflow_bridge.config.document import Document
from workflow_bridge.config.issues import KeyPath
from workflow_bridge.config.models import Database
from workflow_bridge.config.verdicts import origin

_POSTGRES: Final = ("postgresql", "postgres", "postgresql+psycopg")


def check_database(document: Document, database: Database) -> Database | None:
    """Return the database with its path made absolute; None, and an issue, if it cannot be.

    ``sqlite`` alone stays as it is: the store knows where the user's file is.
    """
    whole: KeyPath = ("database",)
    path = (*whole, "url") if (*whole, "url") in document.values else whole
    text = database.url
    if message := _flaw(text):
        document.report(path, message + origin(document.variables_of(path)))
        return None
    if is_postgres(text):
        return database
    if "pool" in database.model_fields_set:
        message = "SQLite has no pool of connections: leave it out, or name postgresql://…"
        document.report((*whole, "pool"), message, at_key=True)
    if text == "sqlite":
        return database
    file = document.file.absolute().parent / Path(text.removeprefix("sqlite:///"))
    return database.model_copy(update={"url": f"sqlite:///{file}"})


def is_postgres(url: str) -> bool:
    """Whether the database is on a PostgreSQL server."""
    return url.partition("://")[0] in _POSTGRES


def _flaw(text: str) -> str | None:
    scheme, found, rest = text.partition("://")
    if text == "sqlite":
        return None
    if scheme.partition("+")[0] in ("postgresql", "postgres"):
        return _postgres_flaw(text)
    if not found or scheme != "sqlite" or not rest.startswith("/"):
        return "must be `sqlite`, `sqlite:///` and the path of a file, or `postgresql://…`"
    path = rest.removeprefix("/")
    if path in ("", ":memory:") or path.startswith("file:"):
        return "must name a file: tasks outlive the process"
    if path.startswith("~"):
        return "`~` is not expanded; say sqlite:///${HOME}/…"
    if any(char in path for char in "?#%\0"):
        return "must name a file without `?`, `#` or `%` in its path"
    return None


def _postgres_flaw(text: str) -> str | None:
    right = "postgresql://user:password@host:port/database"
    if not is_postgres(text):
        return f"PostgreSQL is spoken to by psycopg alone: say {right}"
    if not text.isprintable() or " " in text:
        return f"must be {right}, without blanks"
    escaped = "write %40 for @, %3A for :, %2F for /, %23 for # and %3F for ? in user and password"
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - raises for one that is no number
    except ValueError:
        return f"must be {right}; {escaped}"
    if not parts.netloc and not text.partition("://")[2].startswith("/"):
        return f"must be {right}"
    if "@" in parts.netloc.rpartition("@")[0] or parts.fragment or "/" in parts.path[1:]:
        return f"must be {right}; {escaped}"
    return None
