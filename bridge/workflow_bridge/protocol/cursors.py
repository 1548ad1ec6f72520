"""Cursors of lists: opaque to clients, good for one owner, checked before use (A-15). Pure."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from typing import Final

from workflow_bridge.core.store import Position
from workflow_bridge.protocol.errors import invalid

_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_CHECK_BYTES: Final = 12
_MAX_LENGTH: Final = 200


def cursor(owner: str, position: Position) -> str:
    """Return the cursor of a place in the owner's list."""
    micros = (position.created_at - _EPOCH) // timedelta(microseconds=1)
    place = f"{micros}.{position.row_id}".encode()
    return urlsafe_b64encode(_check(owner, place) + place).decode()


def position(owner: str, value: object) -> Position | None:
    """Return the place a cursor names; None for no cursor. Raises `Refused` for a made-up one.

    The checksum is no secret: it catches mistakes. What keeps owners apart is the query.
    """
    if value is None:
        return None
    try:
        return _read(owner, value)
    except ValueError:
        message = "Invalid cursor; send a nextCursor as it was given, or none to begin"
        raise invalid("cursor", message) from None


def _read(owner: str, value: object) -> Position:
    if not isinstance(value, str) or len(value) > _MAX_LENGTH:
        raise ValueError("no cursor of ours")
    raw = urlsafe_b64decode(value.encode("ascii"))
    check, place = raw[:_CHECK_BYTES], raw[_CHECK_BYTES:]
    if check != _check(owner, place):
        raise ValueError("wrong checksum")
    micros, _, row_id = place.decode("ascii").partition(".")
    return Position(_EPOCH + timedelta(microseconds=int(micros)), row_id)


def _check(owner: str, place: bytes) -> bytes:
    return hashlib.sha256(owner.encode() + b"\0" + place).digest()[:_CHECK_BYTES]
