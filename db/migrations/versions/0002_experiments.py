"""experiments, their trials, and the keys under which they and jobs are created"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

ID = sa.String(32)
TIME = sa.BigInteger()
BIGINT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "experiments",
        sa.Column("id", ID, primary_key=True),
        sa.Column("number", BIGINT, nullable=False, unique=True),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("spec", sa.JSON, nullable=False),
        sa.Column("code", sa.String(64)),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("reason_code", sa.String(48), nullable=False),
        sa.Column("metric", sa.Text, nullable=False),
        sa.Column("goal", sa.String(8), nullable=False),
        sa.Column("objective_at", sa.String(8), nullable=False),
        sa.Column("parallel", sa.Integer, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("finished_at", TIME),
    )
    op.create_index("ix_experiments_code", "experiments", ["code"])
    unfinished = sa.text("finished_at IS NULL")
    op.create_index(
        "ix_experiments_unfinished", "experiments", ["id"],
        sqlite_where=unfinished, postgresql_where=unfinished,
    )  # fmt: skip
    # A table of SQLite gets columns, but no foreign keys, without being written again.
    for column in (
        sa.Column("experiment_id", ID), sa.Column("trial", sa.Integer),
        sa.Column("repeat", sa.Integer),
    ):  # fmt: skip
        op.add_column("jobs", column)
    op.create_index(
        "ix_jobs_experiment_id", "jobs", ["experiment_id", "trial", "repeat"], unique=True
    )
    op.create_table(
        "trials",
        sa.Column(
            "experiment_id", ID, sa.ForeignKey("experiments.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("repeat", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("values", sa.JSON, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("reason_code", sa.String(48), nullable=False),
        sa.Column("job_id", ID, sa.ForeignKey("jobs.id", ondelete="SET NULL"), unique=True),
        sa.Column("command", sa.String(8)),
        sa.Column("paused", sa.Boolean, nullable=False),
        sa.Column("objective", sa.Double),
        sa.Column("results", sa.JSON, nullable=False),
    )  # fmt: skip
    op.create_index("ix_trials_state", "trials", ["experiment_id", "state"])
    op.create_table(
        "idempotency_keys",
        sa.Column("key", sa.String(255), primary_key=True),
        sa.Column("body_sha256", sa.String(64), nullable=False),
        sa.Column("job_id", ID, sa.ForeignKey("jobs.id", ondelete="CASCADE")),
        sa.Column("experiment_id", ID, sa.ForeignKey("experiments.id", ondelete="CASCADE")),
        sa.Column("created_at", TIME, nullable=False),
    )
    op.create_index("ix_idempotency_keys_job_id", "idempotency_keys", ["job_id"])


def downgrade() -> None:
    op.drop_table("idempotency_keys")
    op.drop_table("trials")
    op.drop_index("ix_jobs_experiment_id", "jobs")
    for name in ("repeat", "trial", "experiment_id"):
        op.drop_column("jobs", name)
    op.drop_table("experiments")
