"""Tables of users and their credentials, groups, projects, roles, secrets, and the audit log.

Of a credential only its SHA-256 is stored, of a password only its argon2id hash, and the secrets of
jobs are encrypted.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    CheckConstraint,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    String,
    Text,
    false,
)
from sqlalchemy.orm import Mapped, mapped_column

from trainhall.db.models import Base
from trainhall.db.types import BigInt

SHA256_LENGTH = 64


class User(Base):
    """A person or a program that uses the coordinator."""

    __tablename__ = "users"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    name: Mapped[str] = mapped_column(String(128), unique=True)
    kind: Mapped[str] = mapped_column(String(8), default="person", server_default="person")
    """person or service."""
    project: Mapped[str | None] = mapped_column(String(128))
    """Project of a service account: its maintainers manage it, and it has roles there alone. None:
    admins do."""
    is_admin: Mapped[bool] = mapped_column(Boolean)
    admin_by_provider: Mapped[bool] = mapped_column(Boolean, default=False, server_default=false())
    """True: `is_admin` is as the OpenID provider said at the last login, which may end it."""
    password: Mapped[str | None] = mapped_column(Text)
    """Its hash by argon2id; None: no login by password."""
    issuer: Mapped[str | None] = mapped_column(String(255))
    """OpenID provider that knows them as `subject`; the two are their identity there."""
    subject: Mapped[str | None] = mapped_column(String(255))
    created_at: Mapped[datetime]
    removed_at: Mapped[datetime | None]
    """The name of a removed user is not given to another one: jobs keep it."""

    __table_args__ = (Index("ix_users_subject", "issuer", "subject", unique=True),)


class Group(Base):
    """Users who have roles together."""

    __tablename__ = "groups"

    name: Mapped[str] = mapped_column(String(128), primary_key=True)
    created_at: Mapped[datetime]


class GroupMember(Base):
    __tablename__ = "group_members"

    group: Mapped[str] = mapped_column(
        ForeignKey("groups.name", ondelete="CASCADE"), primary_key=True
    )
    user_id: Mapped[str] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"), primary_key=True, index=True
    )
    by_provider: Mapped[bool] = mapped_column(Boolean, default=False)
    """True: as the OpenID provider said at the last login, which may end it."""


class Project(Base):
    """Home of jobs, and of the roles of users on them."""

    __tablename__ = "projects"

    name: Mapped[str] = mapped_column(String(128), primary_key=True)
    limits: Mapped[dict[str, Any]] = mapped_column(JSON)
    """`trainhall.cluster.access.limits.ProjectLimits`, as admins set them."""
    configured: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    """Limits that the coordinator's configuration gave at its last start, in place of those."""
    created_at: Mapped[datetime]

    @property
    def effective_limits(self) -> dict[str, Any]:
        """Limits that count."""
        return {**self.limits, **self.configured}


class Member(Base):
    """A role of a user, or of a group, in a project."""

    __tablename__ = "project_members"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    project: Mapped[str] = mapped_column(ForeignKey("projects.name", ondelete="CASCADE"))
    user_id: Mapped[str | None] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"), index=True
    )
    """None: a group's."""
    group: Mapped[str | None] = mapped_column(
        ForeignKey("groups.name", ondelete="CASCADE"), index=True
    )
    role: Mapped[str] = mapped_column(String(16))
    """`trainhall.cluster.access.roles.Role`."""

    __table_args__ = (
        Index("ix_project_members_project_user", "project", "user_id", unique=True),
        Index("ix_project_members_project_group", "project", "group", unique=True),
    )


class ProjectCode(Base):
    """Uploaded code that a project has. Who knows the hash alone has nothing: another project that
    wants it has to upload it, too."""

    __tablename__ = "project_code"

    sha256: Mapped[str] = mapped_column(String(SHA256_LENGTH), primary_key=True)
    project: Mapped[str] = mapped_column(
        ForeignKey("projects.name", ondelete="CASCADE"), primary_key=True, index=True
    )
    used_at: Mapped[datetime]
    """When it was uploaded there last, or a job or experiment was submitted with it."""


class Secret(Base):
    """A secret of a project or a user (`trainhall.cluster.secrets`)."""

    __tablename__ = "secrets"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    name: Mapped[str] = mapped_column(String(128))
    """Environment variable of ranks."""
    project: Mapped[str | None] = mapped_column(ForeignKey("projects.name", ondelete="CASCADE"))
    """None: it is a user's."""
    user_id: Mapped[str | None] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    """None: it is a project's."""
    sealed: Mapped[bytes]
    """The value, encrypted."""
    key_id: Mapped[str] = mapped_column(String(16))
    """Beginning of the SHA-256 of the key, which is not in the database."""
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    updated_by: Mapped[str] = mapped_column(String(128))
    """Name of the user who set the value."""

    __table_args__ = (
        CheckConstraint("(project IS NULL) <> (user_id IS NULL)", name="ck_secrets_owner"),
        Index("ix_secrets_project_name", "project", "name", unique=True),
        Index("ix_secrets_user_id_name", "user_id", "name", unique=True),
    )


class LoginSession(Base):
    """A browser that is logged in."""

    __tablename__ = "login_sessions"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    sha256: Mapped[str] = mapped_column(String(SHA256_LENGTH), unique=True)
    """Hash of the secret in its cookie."""
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    client: Mapped[str] = mapped_column(String(256))
    """The browser's own description of itself."""
    created_at: Mapped[datetime]
    used_at: Mapped[datetime]
    expires_at: Mapped[datetime]


class ApiToken(Base):
    """A token of a program."""

    __tablename__ = "api_tokens"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    sha256: Mapped[str] = mapped_column(String(SHA256_LENGTH), unique=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    name: Mapped[str] = mapped_column(String(128))
    created_at: Mapped[datetime]
    used_at: Mapped[datetime | None]
    expires_at: Mapped[datetime | None]
    """None: it does not expire."""
    project: Mapped[str | None] = mapped_column(String(128))
    """The only project that it reaches; None: all of the user's."""
    role: Mapped[str | None] = mapped_column(String(16))
    """The most that it allows there; None: as the user's role."""
    scopes: Mapped[list[Any] | None] = mapped_column(JSON(none_as_null=True))
    """All that it may do, such as `metrics`; None: whatever the user may."""
    job_id: Mapped[str | None] = mapped_column(String(32))
    """Job whose attempt it belongs to, with which it ends; None: it is the user's own."""
    attempt: Mapped[int | None]
    node_id: Mapped[str | None] = mapped_column(String(32))
    """Node that asked for it."""

    __table_args__ = (
        ForeignKeyConstraint(
            ["job_id", "attempt"], ["attempts.job_id", "attempts.number"], ondelete="CASCADE"
        ),
        Index("ix_api_tokens_attempt", "job_id", "attempt", "node_id", unique=True),
    )


class LoginCode(Base):
    """The code of a login link, which works once."""

    __tablename__ = "login_codes"

    sha256: Mapped[str] = mapped_column(String(SHA256_LENGTH), primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    expires_at: Mapped[datetime]


class AuditEntry(Base):
    """A change, written in its transaction, or a refusal. It has no secret values."""

    __tablename__ = "audit"

    id: Mapped[int] = mapped_column(BigInt, primary_key=True, autoincrement=True)
    time: Mapped[datetime] = mapped_column(index=True)
    user: Mapped[str | None] = mapped_column(String(128))
    """Name of the user. None: not known, or the coordinator itself."""
    how: Mapped[str] = mapped_column(String(16))
    """Credential: token, session, node, none."""
    credential: Mapped[str | None] = mapped_column(String(128))
    """Name of the API token, or id of the session or node."""
    address: Mapped[str | None] = mapped_column(String(64))
    """Address that the request came from."""
    action: Mapped[str] = mapped_column(String(64))
    """Such as `job.cancel`."""
    kind: Mapped[str | None] = mapped_column(String(32))
    """Kind of the object, such as `job`."""
    object: Mapped[str | None] = mapped_column(String(255))
    """Its id or name."""
    project: Mapped[str | None] = mapped_column(String(128))
    outcome: Mapped[str] = mapped_column(String(16))
    """done, or why it was refused: unauthenticated, forbidden."""
    detail: Mapped[str] = mapped_column(Text, default="")
    """In words."""
    fields: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    """Fields that changed, each `[before, after]`."""

    __table_args__ = (Index("ix_audit_project_id", "project", "id"),)
