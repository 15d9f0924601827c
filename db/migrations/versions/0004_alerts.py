"""alerts, what they report at present, and their deliveries"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

ID = sa.String(32)
TIME = sa.BigInteger
NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "alerts",
        sa.Column("id", ID, primary_key=True),
        sa.Column("number", NUMBER, nullable=False, unique=True),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("on", sa.JSON, nullable=False),
        sa.Column("scope_kind", sa.String(8), nullable=False),
        sa.Column("scope_value", sa.String(128)),
        sa.Column("waiting_seconds", sa.Double, nullable=False),
        sa.Column("disk_percent", sa.Double, nullable=False),
        sa.Column("target_kind", sa.String(8), nullable=False),
        sa.Column("target_url", sa.Text),
        sa.Column("secret", sa.String(64)),
        sa.Column("enabled", sa.Boolean, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("failing_since", TIME),
        sa.Column("created_at", TIME, nullable=False),
    )
    op.create_table(
        "alert_firings",
        sa.Column("alert_id", ID, sa.ForeignKey("alerts.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("condition", sa.String(32), primary_key=True),
        sa.Column("subject", sa.String(160), primary_key=True),
        sa.Column("since", TIME, nullable=False),
    )
    op.create_table(
        "alert_deliveries",
        sa.Column("id", NUMBER, primary_key=True, autoincrement=True),
        sa.Column(
            "alert_id", ID, sa.ForeignKey("alerts.id", ondelete="CASCADE"), nullable=False
        ),
        sa.Column("condition", sa.String(32), nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("subjects", sa.JSON, nullable=False),
        sa.Column("subject_count", sa.Integer, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("status", sa.Integer),
        sa.Column("error", sa.Text),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("next_try_at", TIME),
        sa.Column("finished_at", TIME),
        sa.Column("sequence", NUMBER, unique=True),
    )  # fmt: skip
    op.create_index("ix_alert_deliveries_finished_at", "alert_deliveries", ["finished_at"])
    op.create_index("ix_alert_deliveries_alert_id", "alert_deliveries", ["alert_id", "id"])
    pending = sa.text("state = 'pending'")
    op.create_index(
        "ix_alert_deliveries_pending", "alert_deliveries", ["alert_id", "next_try_at"],
        sqlite_where=pending, postgresql_where=pending,
    )  # fmt: skip


def downgrade() -> None:
    for name in ("alert_deliveries", "alert_firings", "alerts"):
        op.drop_table(name)
