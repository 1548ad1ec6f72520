"""What PostgreSQL's errors mean: what passes by itself, what an operator must do.

No text repeats a value: the server's own details do, so they are dropped.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
from sqlalchemy.exc import DBAPIError

from workflow_bridge.core.store import StoreError
from workflow_bridge.store import DatabaseUnavailable, DatabaseUnusable


class Kind(enum.Enum):
    """What to do about an error."""

    LOST = "lost"
    """The connection is gone, or must go: again, on a new one."""
    CONFLICT = "conflict"
    """The server undid it for the sake of others: again."""
    BUSY = "busy"
    """It may work later, but not by insisting."""
    UNUSABLE = "unusable"
    """Somebody must do something about the database."""
    REFUSED = "refused"
    """A row that breaks a rule of the tables."""
    UNSTORABLE = "unstorable"
    """A value that the database does not hold."""
    OURS = "ours"
    """None of the database's."""


_RIGHTS: Final = (
    "its user lacks rights ({words}); connect as the owner of the bridge's tables, or grant what is"
    " missing"
)
_READ_ONLY: Final = (
    "it is read-only, as a standby is; name the primary, or several hosts with"
    " target_session_attrs=read-write"
)
_FULL: Final = "it has run out of something ({words}); give it more"

_STATES: Final[dict[str, tuple[Kind, str]]] = {
    # Exact states first, then classes.
    "25006": (Kind.LOST, _READ_ONLY),
    "25P02": (Kind.OURS, ""),
    "25P03": (Kind.LOST, "it ended a transaction that stood still"),
    "25P04": (Kind.LOST, "it ended a transaction that took long"),
    "40003": (Kind.LOST, "it cannot say what became of a transaction"),
    "42501": (Kind.UNUSABLE, _RIGHTS),
    "53300": (Kind.LOST, "it has no connection left; raise max_connections, or lower the pool"),
    "55P03": (Kind.CONFLICT, "somebody else keeps a table or row locked"),
    "57014": (Kind.BUSY, "it took too long over a statement; see what else it is busy with"),
    "57P04": (Kind.UNUSABLE, "somebody dropped it"),
    "08": (Kind.LOST, "the connection broke"),
    "22": (Kind.UNSTORABLE, ""),
    "23": (Kind.REFUSED, ""),
    "28": (Kind.UNUSABLE, "it does not let this user in ({words})"),
    "3D": (Kind.UNUSABLE, "there is no such database; create it"),
    "3F": (Kind.UNUSABLE, "there is no such schema; create it, or set the user's search_path"),
    "40": (Kind.CONFLICT, "transactions keep getting in each other's way"),
    "42": (
        Kind.UNUSABLE,
        "its tables are not the bridge's ({words}); run: workflow-bridge db check",
    ),
    "53": (Kind.BUSY, _FULL),
    "54": (Kind.UNUSABLE, "it is beyond a limit of the server ({words})"),
    "55": (Kind.BUSY, "something of it is in use ({words})"),
    "57": (Kind.LOST, "the server is shutting down or starting; see its log"),
    "58": (Kind.BUSY, "the server reports an error of its machine ({words}); see its log"),
    "XX": (Kind.BUSY, "the server reports an error of its own ({words}); see its log"),
}

_CREDENTIALS: Final = (
    "it refuses this user or password; check both, and that nothing in the URL needs %-encoding"
)
_TLS: Final = "no encrypted connection comes about ({words}); check sslmode and sslrootcert"
_UNREACHABLE: Final = (
    "the server cannot be reached ({words}); check that it runs, its host and port, and firewalls"
)
# libpq reports what goes wrong before a session exists as text only, in order of being telling.
_CONNECTING: Final = (
    ("password authentication failed", _CREDENTIALS),
    ("no password supplied", "it wants a password; put one into the URL or PGPASSWORD"),
    ("role", "there is no such user ({words}); create it, or name another"),
    ("no pg_hba.conf entry", "it does not let this user in from here; see its pg_hba.conf"),
    ("permission denied for database", "its user may not connect; GRANT CONNECT ON DATABASE to it"),
    ("certificate", _TLS),
    ("SSL", _TLS),
    ("too many clients", "it has no connection left; raise max_connections, or lower the pool"),
    ("connection slots", "it has no connection left; raise max_connections, or lower the pool"),
    ("starting up", "the server is starting; try again in a moment"),
    ("shutting down", "the server is shutting down; start it again"),
    ("startup parameter", "PgBouncer refuses a part of the URL ({words}); take it out"),
    ("target_session_attrs", _READ_ONLY),
    ("read-only", _READ_ONLY),
    ("resolve host", "its host is not known ({words}); check the name"),
    ("translate host", "its host is not known ({words}); check the name"),
    ("no such database", "there is no such database; create it"),
)


class Trouble:
    """An error of the driver, judged."""

    def __init__(self, exc: Exception) -> None:
        cause = exc.orig if isinstance(exc, DBAPIError) else exc
        state = cause.sqlstate if isinstance(cause, psycopg.Error) else None
        found = _STATES.get(state or "") or _STATES.get((state or "")[:2])
        if found is not None:
            self.kind, text = found
            words = cause.diag.message_primary or "" if isinstance(cause, psycopg.Error) else ""
        elif isinstance(cause, psycopg.OperationalError):
            self.kind, words = Kind.LOST, _words(cause)
            text = _connecting(words)
        elif isinstance(cause, (psycopg.DataError, UnicodeError)):
            self.kind, words, text = Kind.UNSTORABLE, "", ""
        elif isinstance(cause, psycopg.Error):
            # Not of the server: the driver's own, about its arguments or a closed connection.
            self.kind, words, text = Kind.UNUSABLE, _words(cause), "its driver objects ({words})"
        else:
            self.kind, words, text = Kind.OURS, "", ""
        self.reason = text.format(words=words)
        self._constraint = getattr(getattr(cause, "diag", None), "constraint_name", None)

    def unusable(self, name: str) -> StoreError:
        """Return it for one who opens the database, and would have to wait for ever."""
        return DatabaseUnusable(f"the database {name} cannot be used: {self.reason}")

    def error(self, name: str, *, in_doubt: bool = False) -> Exception:
        """Return it for one who works with the database, with nothing left to try."""
        match self.kind:
            case Kind.LOST | Kind.CONFLICT | Kind.BUSY:
                return unavailable(name, self.reason, in_doubt=in_doubt)
            case Kind.REFUSED:
                return StoreError(f"the database refuses the row: it breaks {self._constraint}")
            case Kind.UNSTORABLE:
                return ValueError("a text holds NUL or half a character: no database holds that")
            case _:
                return self.unusable(name)


def unavailable(name: str, reason: str, *, in_doubt: bool = False) -> DatabaseUnavailable:
    """Return the error of a database that may be back later."""
    doubt = "; what was being written may have been written" if in_doubt else ""
    return DatabaseUnavailable(f"the database {name} is unavailable: {reason}{doubt}")


@contextmanager
def named(name: str) -> Iterator[None]:
    """Turn what goes wrong while a database is opened into `DatabaseUnusable`."""
    try:
        yield
    except (psycopg.Error, DBAPIError) as exc:
        trouble = Trouble(exc)
        raise trouble.unusable(name) from None


def _words(cause: psycopg.Error) -> str:
    """Return what the driver says, without saying again where it was connecting to."""
    first = str(cause).partition("\n")[0]
    return first.rpartition(" failed: ")[2].removeprefix("FATAL:").removeprefix("ERROR:").strip()


def _connecting(words: str) -> str:
    if "does not exist" in words:
        words = words.replace("database", "no such database") if "role" not in words else words
    return next((text for needle, text in _CONNECTING if needle in words), _UNREACHABLE)
