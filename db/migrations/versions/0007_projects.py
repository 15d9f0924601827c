"""groups, projects, roles and the audit log; what belongs to a user or a project"""

import re
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

ID, NAME, TIME = sa.String(32), sa.String(128), sa.BigInteger()
NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    _extend_users()
    op.create_table(
        "groups",
        sa.Column("name", NAME, primary_key=True),
        sa.Column("created_at", TIME, nullable=False),
    )
    op.create_table(
        "group_members",
        sa.Column("group", NAME, _to("groups.name"), primary_key=True),
        sa.Column("user_id", ID, _to("users.id"), primary_key=True),
        sa.Column("by_provider", sa.Boolean, nullable=False),
    )
    op.create_index("ix_group_members_user_id", "group_members", ["user_id"])
    op.create_table(
        "projects",
        sa.Column("name", NAME, primary_key=True),
        sa.Column("limits", sa.JSON, nullable=False),
        sa.Column("configured", sa.JSON, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
    )
    op.create_table(
        "project_members",
        sa.Column("id", ID, primary_key=True),
        sa.Column("project", NAME, _to("projects.name"), nullable=False),
        sa.Column("user_id", ID, _to("users.id")),
        sa.Column("group", NAME, _to("groups.name")),
        sa.Column("role", sa.String(16), nullable=False),
    )
    op.create_index("ix_project_members_user_id", "project_members", ["user_id"])
    op.create_index("ix_project_members_group", "project_members", ["group"])
    for member in ("user", "group"):
        columns = ["project", "user_id" if member == "user" else member]
        name = f"ix_project_members_project_{member}"
        op.create_index(name, "project_members", columns, unique=True)
    op.create_table(
        "audit",
        sa.Column("id", NUMBER, primary_key=True, autoincrement=True),
        sa.Column("time", TIME, nullable=False),
        sa.Column("user", NAME),
        sa.Column("how", sa.String(16), nullable=False),
        sa.Column("credential", NAME),
        sa.Column("address", sa.String(64)),
        sa.Column("action", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(32)),
        sa.Column("object", sa.String(255)),
        sa.Column("project", NAME),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("fields", sa.JSON),
    )
    op.create_index("ix_audit_time", "audit", ["time"])
    op.create_index("ix_audit_project_id", "audit", ["project", "id"])
    op.create_table(
        "project_code",
        sa.Column("sha256", sa.String(64), primary_key=True),
        sa.Column("project", NAME, _to("projects.name"), primary_key=True),
        sa.Column("used_at", TIME, nullable=False),
    )
    op.create_index("ix_project_code_project", "project_code", ["project"])
    op.create_table(
        "secrets",
        sa.Column("id", ID, primary_key=True),
        sa.Column("name", NAME, nullable=False),
        sa.Column("project", NAME, _to("projects.name")),
        sa.Column("user_id", ID, _to("users.id")),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.Column("key_id", sa.String(16), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("updated_by", NAME, nullable=False),
        sa.CheckConstraint("(project IS NULL) <> (user_id IS NULL)", name="ck_secrets_owner"),
    )
    op.create_index("ix_secrets_project_name", "secrets", ["project", "name"], unique=True)
    op.create_index("ix_secrets_user_id_name", "secrets", ["user_id", "name"], unique=True)
    _give_owners()
    _add_projects()
    _give_code()


def _to(column: str) -> sa.ForeignKey:
    return sa.ForeignKey(column, ondelete="CASCADE")


def _extend_users() -> None:
    # A table that is copied, as SQLite has to for a constraint, would take its dependents along.
    person = sa.Column("kind", sa.String(8), nullable=False, server_default="person")
    by_provider = sa.Column(
        "admin_by_provider", sa.Boolean, nullable=False, server_default=sa.false()
    )
    for column in (
        person,
        by_provider,
        sa.Column("project", NAME),
        sa.Column("password", sa.Text),
        sa.Column("issuer", sa.String(255)),
        sa.Column("subject", sa.String(255)),
        sa.Column("removed_at", TIME),
    ):
        op.add_column("users", column)
    op.create_index("ix_users_subject", "users", ["issuer", "subject"], unique=True)
    op.add_column("api_tokens", sa.Column("project", NAME))
    op.add_column("api_tokens", sa.Column("role", sa.String(16)))
    op.add_column("api_tokens", sa.Column("scopes", sa.JSON))


def _give_owners() -> None:
    """Give what there is to a user and a project."""
    for table in ("experiments", "reports"):
        op.add_column(table, sa.Column("user", NAME))
        op.add_column(table, _project("project"))
        op.create_index(f"ix_{table}_project", table, ["project"])
    op.add_column("alerts", sa.Column("user", NAME))
    op.add_column("alert_deliveries", sa.Column("project", NAME))
    op.add_column("nodes", sa.Column("projects", sa.JSON))
    op.add_column("nodes", sa.Column("removed_by", NAME))
    for table in ("jobs", "experiments"):
        op.add_column(table, sa.Column("asked_by", NAME))
    connection = op.get_bind()
    experiments = sa.table(
        "experiments",
        *(sa.column(name, NAME) for name in ("id", "user", "project")),
        sa.column("spec", sa.JSON),
    )
    for row in connection.execute(sa.select(experiments.c.id, experiments.c.spec)).all():
        job = row.spec["job"]
        owner = {"user": job.get("user"), "project": job.get("project") or "default"}
        connection.execute(sa.update(experiments).where(experiments.c.id == row.id).values(**owner))
    # Not altered but replaced: SQLite cannot forbid NULL in a column that is there.
    op.add_column("jobs", _project("new_project"))
    jobs = sa.table("jobs", sa.column("project", NAME), sa.column("new_project", NAME))
    connection.execute(
        sa.update(jobs).values(new_project=jobs.c.project).where(jobs.c.project.is_not(None))
    )
    op.drop_column("jobs", "project")
    op.execute("ALTER TABLE jobs RENAME COLUMN new_project TO project")
    op.create_index("ix_jobs_project", "jobs", ["project", "archived", "number"])
    _recreate(
        "idempotency_keys",
        sa.Column("user", NAME, primary_key=True),
        sa.Column("key", sa.String(255), primary_key=True),
        sa.Column("body_sha256", sa.String(64), nullable=False),
        sa.Column("job_id", ID, _to("jobs.id")),
        sa.Column("experiment_id", ID, _to("experiments.id")),
        sa.Column("created_at", TIME, nullable=False),
    )
    op.create_index("ix_idempotency_keys_job_id", "idempotency_keys", ["job_id"])
    _recreate(
        "saved_views",
        sa.Column("user", NAME, primary_key=True),
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("view", sa.JSON, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
    )


def _project(name: str) -> sa.Column[str]:
    return sa.Column(name, NAME, nullable=False, server_default="default")


def _recreate(name: str, *columns: sa.Column[Any]) -> None:
    """Recreate a table with `user` in its key; what is in it belongs to nobody."""
    connection = op.get_bind()
    old = sa.table(name, *(sa.column(each.name, each.type) for each in columns[1:]))
    rows = [dict(row) for row in connection.execute(sa.select(old)).mappings()]
    op.drop_table(name)
    op.create_table(name, *columns)
    if rows:
        new = sa.table(name, *(sa.column(each.name, each.type) for each in columns))
        connection.execute(sa.insert(new), [{"user": "", **row} for row in rows])


def _add_projects() -> None:
    """Add the default project, and those that jobs and experiments name."""
    connection = op.get_bind()
    since = {"default": int(datetime.now(UTC).timestamp() * 1e6)}
    for name in ("jobs", "experiments"):
        table = sa.table(name, sa.column("project", NAME), sa.column("created_at", TIME))
        first = sa.select(table.c.project, sa.func.min(table.c.created_at))
        for project, begin in connection.execute(first.group_by(table.c.project)).all():
            # A name is a segment of a path.
            renamed = re.sub(r"[/\\:]", "-", project)
            if renamed != project:
                of_project = sa.update(table).where(table.c.project == project)
                connection.execute(of_project.values(project=renamed))
            since[renamed] = min(begin, since.get(renamed, begin))
    projects = sa.table(
        "projects",
        sa.column("name", NAME),
        sa.column("limits", sa.JSON),
        sa.column("configured", sa.JSON),
        sa.column("created_at", TIME),
    )
    rows = [
        {"name": name, "limits": {}, "configured": {}, "created_at": begin}
        for name, begin in sorted(since.items())
    ]
    connection.execute(sa.insert(projects), rows)


def _give_code() -> None:
    """Give uploaded code to the projects whose jobs and experiments name it."""
    for table in ("experiments", "jobs"):
        op.execute(
            "INSERT INTO project_code (sha256, project, used_at) "
            f"SELECT code, project, max(created_at) FROM {table} WHERE code IS NOT NULL "
            "AND NOT EXISTS (SELECT 1 FROM project_code AS known "
            f"WHERE known.sha256 = {table}.code AND known.project = {table}.project) "
            "GROUP BY code, project"
        )


def downgrade() -> None:
    raise NotImplementedError("projects cannot be taken back; restore the backup from before")
