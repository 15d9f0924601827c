"""accounts: users, their sessions, API tokens and login codes"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

ID, SHA256 = sa.String(32), sa.String(64)
TIME = sa.BigInteger()


def upgrade() -> None:
    op.create_table(
        "users",
        sa.Column("id", ID, primary_key=True),
        sa.Column("name", sa.String(128), nullable=False, unique=True),
        sa.Column("is_admin", sa.Boolean, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
    )
    op.create_table(
        "login_sessions",
        sa.Column("id", ID, primary_key=True),
        sa.Column("sha256", SHA256, nullable=False, unique=True),
        _of_user(),
        sa.Column("client", sa.String(256), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("used_at", TIME, nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
    )
    op.create_index("ix_login_sessions_user_id", "login_sessions", ["user_id"])
    op.create_table(
        "api_tokens",
        sa.Column("id", ID, primary_key=True),
        sa.Column("sha256", SHA256, nullable=False, unique=True),
        _of_user(),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("used_at", TIME),
        sa.Column("expires_at", TIME),
        sa.Column("job_id", ID),
        sa.Column("attempt", sa.Integer),
        sa.Column("node_id", ID),
        sa.ForeignKeyConstraint(
            ["job_id", "attempt"], ["attempts.job_id", "attempts.number"], ondelete="CASCADE"
        ),
    )
    op.create_index("ix_api_tokens_user_id", "api_tokens", ["user_id"])
    op.create_index(
        "ix_api_tokens_attempt", "api_tokens", ["job_id", "attempt", "node_id"], unique=True
    )
    op.create_table(
        "login_codes",
        sa.Column("sha256", SHA256, primary_key=True),
        _of_user(),
        sa.Column("expires_at", TIME, nullable=False),
    )


def _of_user() -> sa.Column[str]:
    return sa.Column("user_id", ID, sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False)


def downgrade() -> None:
    for name in ("login_codes", "api_tokens", "login_sessions", "users"):
        op.drop_table(name)
