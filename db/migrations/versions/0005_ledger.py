"""the ledger: device-seconds and energy of attempts"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "ledger",
        sa.Column("job_id", sa.String(32), primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("user", sa.String(128)),
        sa.Column("project", sa.String(128)),
        sa.Column("device", sa.String(8), nullable=False),
        sa.Column("is_open", sa.Boolean, nullable=False),
        sa.Column("counted_until", sa.BigInteger, nullable=False),
        sa.Column("held_seconds", sa.Double, nullable=False),
        sa.Column("useful_seconds", sa.Double),
        sa.Column("redone_seconds", sa.Double),
        sa.Column("data_seconds", sa.Double),
        sa.Column("idle_seconds", sa.Double),
        sa.Column("last_step", sa.BigInteger().with_variant(sa.Integer, "sqlite")),
        sa.Column("metered_seconds", sa.Double, nullable=False),
        sa.Column("energy_joules", sa.Double, nullable=False),
    )
    op.create_index("ix_ledger_counted_until", "ledger", ["counted_until"])
    op.create_index(
        "ix_ledger_open", "ledger", ["job_id", "attempt"],
        sqlite_where=sa.text("is_open IS 1"), postgresql_where=sa.text("is_open IS true"),
    )  # fmt: skip


def downgrade() -> None:
    op.drop_table("ledger")
