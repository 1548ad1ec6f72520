"""Tasks, their payloads and their events."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

NOT_FINAL = "status NOT IN ('cancelled', 'completed', 'failed', 'unknown')"
OPEN = (
    f"({NOT_FINAL} OR (start_settled_at IS NULL"
    " OR (stop_requested_at IS NOT NULL AND stop_confirmed_at IS NULL)))"
)


def upgrade() -> None:
    op.create_table(
        "tasks",
        sa.Column("row_id", sa.String(32), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("dialect", sa.String(16), nullable=False),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("backend", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("workflow", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("arguments_digest", sa.String(64), nullable=False),
        sa.Column("inline", sa.Boolean(), nullable=False),
        sa.Column("client_key", sa.Text(), nullable=True),
        sa.Column("ref", sa.Text(), nullable=True),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("status_message", sa.Text(), nullable=True),
        sa.Column("step", sa.Text(), nullable=True),
        sa.Column("outcome", sa.String(16), nullable=True),
        sa.Column("keep_alive_ms", sa.BigInteger(), nullable=True),
        sa.Column("ttl_ms", sa.BigInteger(), nullable=True),
        sa.Column("poll_ms", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("final_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("start_called_at", sa.BigInteger(), nullable=True),
        sa.Column("start_settled_at", sa.BigInteger(), nullable=True),
        sa.Column("stop_requested_at", sa.BigInteger(), nullable=True),
        sa.Column("stop_confirmed_at", sa.BigInteger(), nullable=True),
        sa.Column("due_at", sa.BigInteger(), nullable=True),
        sa.Column("lease_until", sa.BigInteger(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("last_observed_at", sa.BigInteger(), nullable=True),
        sa.Column("missing_since", sa.BigInteger(), nullable=True),
        sa.Column("hidden_at", sa.BigInteger(), nullable=True),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "status IN ('cancelled', 'completed', 'failed', 'input_required', 'submitted',"
            " 'unknown', 'working')",
            name=op.f("ck_tasks_status"),
        ),
        sa.CheckConstraint("dialect IN ('a', 'b', 'c', 'plain')", name=op.f("ck_tasks_dialect")),
        sa.CheckConstraint("attempts >= 0", name=op.f("ck_tasks_attempts")),
        sa.CheckConstraint("version >= 1", name=op.f("ck_tasks_version")),
        sa.PrimaryKeyConstraint("row_id", name=op.f("pk_tasks")),
        sa.UniqueConstraint("owner", "task_id", name=op.f("uq_tasks_owner_task_id")),
    )
    op.create_index("ix_tasks_list", "tasks", ["owner", "created_at", "row_id"])
    op.create_index("ix_tasks_due", "tasks", ["backend", "due_at"], **_where("due_at IS NOT NULL"))
    op.create_index("ix_tasks_awake", "tasks", ["backend", "due_at"], **_where(OPEN))
    op.create_index("ix_tasks_open", "tasks", ["owner"], **_where(OPEN))
    op.create_index(
        "uq_tasks_client_key",
        "tasks",
        ["owner", "tool", "client_key"],
        unique=True,
        **_where("client_key IS NOT NULL"),
    )
    op.create_table(
        "task_payloads",
        sa.Column("row_id", sa.String(32), nullable=False),
        sa.Column("arguments", sa.LargeBinary(), nullable=True),
        sa.Column("output", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("cause", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["row_id"],
            ["tasks.row_id"],
            name=op.f("fk_task_payloads_row_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("row_id", name=op.f("pk_task_payloads")),
    )
    op.create_table(
        "task_events",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("row_id", sa.String(32), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("dialect", sa.String(16), nullable=False),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_task_events")),
    )
    op.create_index("ix_task_events_row_id", "task_events", ["row_id", "id"])


def downgrade() -> None:
    op.drop_table("task_events")
    op.drop_table("task_payloads")
    op.drop_table("tasks")


def _where(condition: str) -> dict[str, Any]:
    return {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}
