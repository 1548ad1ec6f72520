"""Rows that a bridge might hold, made in SQL: the tasks t1, t2, … of the one owner there is."""

from __future__ import annotations

import time

from sqlalchemy import create_engine

from workflow_bridge.store import schema

ROW_MIX = (
    "half final (of ten: eight completed, one failed, one cancelled), half running and due to be"
    " looked at within the hour, one after another"
)

_FILL = (
    """
INSERT INTO tasks (row_id, owner, task_id, dialect, tool, backend, fingerprint, workflow, key,
    arguments_digest, inline, ref, status, outcome, keep_alive_ms, poll_ms, created_at, updated_at,
    final_at, expires_at, start_called_at, start_settled_at, last_observed_at, due_at, attempts,
    version)
WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {rows})
SELECT 'r' || n, 'local', 't' || n, 'a', 'run', 'engine', '{fingerprint}', '{workflow}',
    'wb-r' || n, '', FALSE, {ref},
    CASE WHEN runs THEN 'working' WHEN n % 10 = 0 THEN 'failed' WHEN n % 10 = 1 THEN 'cancelled'
        ELSE 'completed' END,
    CASE WHEN runs THEN NULL WHEN n % 10 = 0 THEN 'failed' WHEN n % 10 = 1 THEN 'aborted'
        ELSE 'succeeded' END,
    86400000, 5000, {now} - n, {now} - n, CASE WHEN runs THEN NULL ELSE {now} END,
    CASE WHEN runs THEN NULL ELSE {now} + 86400000 END, {now} - n, {now} - n,
    {now} - n * 7919 % {seen_within_ms},
    {now} + CASE WHEN runs THEN n * 7919 % {due_within_ms} ELSE 86400000 END, 0, 5
FROM (SELECT n, n <= {running} AS runs FROM numbers) AS made
""",
    """
INSERT INTO task_payloads (row_id, output, error)
SELECT row_id, CASE WHEN status = 'completed' THEN '{{"invoice": 1}}' END,
    CASE WHEN status = 'failed' THEN 'States.TaskFailed' END
FROM tasks WHERE final_at IS NOT NULL
""",
    """
INSERT INTO task_events (row_id, at, owner, task_id, tool, dialect, kind, status)
SELECT row_id, created_at, owner, task_id, tool, dialect, 'created', 'submitted' FROM tasks
""",
)


def fill(
    url: str,
    *,
    rows: int,
    running: int,
    workflow: str,
    fingerprint: str,
    ref: str,
    seen_within_ms: int = 3_600_000,
    due_within_ms: int = 3_600_000,
) -> None:
    """Fill an empty database; the first ``running`` tasks run.

    ``ref`` is SQL, in which n counts. The last looks at the tasks are spread over
    ``seen_within_ms``, the next ones over ``due_within_ms``.
    """
    schema.upgrade(url)
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    now = round(time.time() * 1000)
    with engine.begin() as connection:
        for statement in _FILL:
            connection.exec_driver_sql(
                statement.format(
                    rows=rows,
                    running=running,
                    workflow=workflow,
                    fingerprint=fingerprint,
                    ref=ref,
                    now=now,
                    seen_within_ms=seen_within_ms,
                    due_within_ms=due_within_ms,
                ).replace("%", "%%" if url.startswith("postgresql") else "%")
            )
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("ANALYZE")
    engine.dispose()
