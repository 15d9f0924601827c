"""copies of parts of a spec, to filter and sort lists; saved views; reports; provenance; runs"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

COLUMNS: dict[str, sa.types.TypeEngine[Any]] = {
    "user": sa.String(128),
    "project": sa.String(128),
    "task": sa.String(128),
    "strategy": sa.String(32),
    "parameters": sa.JSON(none_as_null=True),
    "tags": sa.JSON(none_as_null=True),
    "mlflow_tags": sa.JSON(none_as_null=True),
    "notes": sa.Text(),
}
JOBS = sa.table(
    "jobs",
    sa.column("id", sa.String(32)),
    sa.column("spec", sa.JSON()),
    *(sa.column(name, kind) for name, kind in COLUMNS.items()),
)


def upgrade() -> None:
    for name, kind in COLUMNS.items():
        op.add_column("jobs", sa.Column(name, kind))
    op.create_table(
        "saved_views",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("view", sa.JSON, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "reports",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), nullable=False),
        sa.Column("title", sa.String(128), nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("number"),
    )
    op.add_column("jobs", sa.Column("kind", sa.String(8), server_default="job", nullable=False))
    op.add_column("jobs", sa.Column("group", sa.String(256)))
    op.create_table(
        "run_groups",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer, "sqlite"),
            primary_key=True,
            autoincrement=True,
        ),
        sa.Column("project", sa.String(128), nullable=False),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("project", "name"),
    )
    op.create_table(
        "runs",
        sa.Column(
            "job_id", sa.String(32), sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True
        ),
        sa.Column("group_id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), index=True),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("parameters", sa.JSON, nullable=False),
        sa.Column("tags", sa.JSON, nullable=False),
        sa.Column("imported", sa.Boolean, nullable=False),
    )
    op.create_table(
        "job_provenance",
        sa.Column(
            "job_id", sa.String(32), sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True
        ),
        sa.Column("provenance", sa.JSON, nullable=False),
    )
    connection = op.get_bind()
    for job_id, spec in connection.execute(sa.select(JOBS.c.id, JOBS.c.spec)).all():
        task = spec.get("task")
        copies = {
            "user": spec.get("user"),
            "project": spec.get("project"),
            "task": task["name"] if task else None,
            "strategy": spec["parallelism"]["strategy"] if task else None,
            "parameters": spec.get("parameters") or None,
            "tags": spec.get("tags") or None,
            "notes": spec.get("notes") or None,
        }
        connection.execute(sa.update(JOBS).where(JOBS.c.id == job_id).values(**copies))


def downgrade() -> None:
    op.drop_table("job_provenance")
    op.drop_table("runs")
    op.drop_table("run_groups")
    op.drop_column("jobs", "group")
    op.drop_column("jobs", "kind")
    op.drop_table("reports")
    op.drop_table("saved_views")
    for name in COLUMNS:
        op.drop_column("jobs", name)
