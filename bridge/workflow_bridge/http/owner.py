"""Whose tasks a request is about (A-23)."""

from __future__ import annotations

import hashlib
from typing import Final

from mcp_types import INVALID_REQUEST

from workflow_bridge.http.options import Isolation
from workflow_bridge.protocol.errors import Refused
from workflow_bridge.protocol.inflight import Context, Owner, session_of

LOCAL: Final = "local"
"""The one user of this machine."""


def owner_by(isolation: Isolation) -> Owner:
    """Return what tells a request's owner: its session where it has one, unless there is to be one.

    Without a session: the one user of this machine (auto), or a refusal (session).
    """

    def owner(ctx: Context) -> str:
        session = None if isolation == "none" else session_of(ctx)
        if session is not None:
            # Whoever holds the id holds the session: it must not be read off logs or the database.
            return f"session:{hashlib.sha256(session.encode()).hexdigest()}"
        if isolation == "session":
            raise Refused(
                "no_session",
                INVALID_REQUEST,
                "Tasks belong to sessions on this server, and this request has none: "
                "initialize with protocol 2025-11-25 or earlier",
            )
        return LOCAL

    return owner
