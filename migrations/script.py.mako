"""${message}.

A process of the build before may run on the new schema: add columns that are nullable or have a
server default, and remove only what no build in use still writes. Add the revision to
`workflow_bridge.store.schema.REVISIONS`.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    ${downgrades if downgrades else "pass"}
