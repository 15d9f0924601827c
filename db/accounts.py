"""Tables of users and their credentials. Of a secret only its SHA-256 is stored."""

from datetime import datetime

from sqlalchemy import Boolean, ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from trainhall.db.models import Base

SHA256_LENGTH = 64


class User(Base):
    """A person or a program that uses the coordinator."""

    __tablename__ = "users"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    name: Mapped[str] = mapped_column(String(128), unique=True)
    is_admin: Mapped[bool] = mapped_column(Boolean)
    created_at: Mapped[datetime]


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


class LoginCode(Base):
    """The code of a login link, which works once."""

    __tablename__ = "login_codes"

    sha256: Mapped[str] = mapped_column(String(SHA256_LENGTH), primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    expires_at: Mapped[datetime]
