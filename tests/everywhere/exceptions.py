"""Tests of the protocol that cannot be run in a setting, and why not."""

from __future__ import annotations

from typing import Final

STDIO, SQLITE, POSTGRESQL = "stdio", "http-sqlite", "http-postgresql"
SOCKETS = (SQLITE, POSTGRESQL)
ALL = (STDIO, *SOCKETS)

EXCEPTIONS: Final[dict[str, tuple[str, ...]]] = {
    # When something was sent is known behind the wire alone; on it, when it was received.
    "test_the_task_is_announced_as_submitted_before_the_engine_is_called": ALL,
    # They look at parts of the bridge, without a client.
    "test_a_bucket_fills_at_its_rate_and_says_when": ALL,
    "test_polls_beyond_the_rate_are_answered_from_the_row_up_to_a_hard_limit": ALL,
    "test_no_rate_is_no_limit_and_owners_are_forgotten": ALL,
    "test_the_bounds_are_documented_where_they_are_configured": ALL,
}
