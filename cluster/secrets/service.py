"""Secrets of projects and users: set, list, remove, and hand out for an attempt."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster import pagination
from trainhall.cluster.access.ownership import is_held
from trainhall.cluster.access.principal import who_gives_roles
from trainhall.cluster.access.roles import Action, needed_role
from trainhall.cluster.errors import (
    ConflictError,
    ForbiddenError,
    InvalidValueError,
    NotFoundError,
)
from trainhall.cluster.secrets import views
from trainhall.cluster.secrets.stored import missing, stored_for
from trainhall.cluster.secrets.vault import Vault
from trainhall.cluster.service import Service, ServiceContext, load
from trainhall.db.accounts import Project, Secret
from trainhall.db.models import Attempt, Job
from trainhall.training.spec.source.git_code import git_code_of
from trainhall.training.spec.variables.secrets import check_name

MAX_VALUE_BYTES = 32 * 1024
"""Most bytes of a value; the environment of a process has limits."""
MAX_SECRETS = 1000
"""Most secrets of a project or a user."""


class SecretService(Service):
    """Secrets of projects, or of the caller, where `project` is None."""

    def __init__(self, context: ServiceContext, data_dir: Path) -> None:
        super().__init__(context)
        named = self._options.secrets_key_file
        self._vault = Vault(named or data_dir / "secrets.key", may_create=named is None)
        self._turn = asyncio.Lock()
        """Held while a value is set: the first makes the key."""

    async def list(
        self, project: str | None, *, limit: int = 50, cursor: str | None = None
    ) -> views.SecretPage:
        """List secrets by name, without their values.

        Raises:
            ForbiddenError, NotFoundError: the caller may not, or there is no such project.
        """
        async with self._db.session() as session:
            await self._check_may_list(session, project)
            rows, following = await pagination.page_by_name(
                session, self._of(project), "secrets", Secret.name, limit, cursor
            )
        items = [views.Secret.of(row) for (row,) in rows]
        return views.SecretPage(items=items, next_cursor=following)

    async def set(self, project: str | None, name: str, value: str) -> None:
        """Set a secret, in place of the value that it has.

        Raises:
            ForbiddenError, NotFoundError: the caller may not, or there is no such project.
            InvalidValueError: no secret may have this name, or this value.
            ConflictError: the key of those that are stored is missing, or another one.
        """
        try:
            check_name(name)
        except ValueError as error:
            raise InvalidValueError("name", name, str(error)) from None
        _check_value(value)
        async with self._turn, self._db.transaction() as session:
            await self._check_may_change(session, project)
            key_ids = await session.scalars(select(Secret.key_id).distinct())
            known = key_ids.all()
            key = self._vault.key() if known else self._vault.first_key()
            for key_id in known:
                self._vault.check(key, key_id)
            row = await session.scalar(self._of(project).where(Secret.name == name))
            now = self._clock.now()
            is_new = row is None
            if row is None:
                await self._check_count(session, project)
                owner = None if project is not None else self._caller.user_id
                row = Secret(
                    id=self._ids.new(), name=name, project=project, user_id=owner, created_at=now
                )
                session.add(row)
            self._vault.seal(key, row, value)
            row.updated_at, row.updated_by = now, self._caller.user
            self._audit(
                session, "secret.set", name, project=project,
                detail=_detail(project, "new" if is_new else "another value"),
            )  # fmt: skip

    async def remove(self, project: str | None, name: str) -> None:
        """Remove a secret. Jobs that run keep it; those that start later fail.

        Raises:
            ForbiddenError: the caller may not.
            NotFoundError: there is no such secret or project.
        """
        async with self._db.transaction() as session:
            await self._check_may_change(session, project)
            row = await session.scalar(self._of(project).where(Secret.name == name))
            if row is None:
                raise NotFoundError("secret", name)
            await session.delete(row)
            self._audit(
                session, "secret.remove", name, project=project, detail=_detail(project, "")
            )

    async def of_attempt(self, job_id: str, attempt: int) -> Mapping[str, str]:
        """Return the secrets of an attempt by name, for a node that holds it.

        Raises:
            ConflictError: the attempt is over, a secret is not set any more, or the key is missing.
            NotFoundError: there is no such attempt.
        """
        async with self._db.session() as session:
            job = await load(session, Job, job_id)
            found = await session.get(Attempt, (job_id, attempt))
            if found is None:
                raise NotFoundError("attempt", f"{attempt} of job {job_id}")
            if found.revoked or found.finished_at is not None:
                raise ConflictError(f"attempt {attempt} of job {job_id} is over")
            names = _needed(found.spec or job.spec)
            stored = await stored_for(session, names, job.project, job.user)
        for name in names:
            if name not in stored:
                raise ConflictError(f"secret {name} {missing(name, job.project)}")
        if not stored:
            return {}
        key = self._vault.key()
        return {name: self._vault.open(key, stored[name]) for name in names}

    def _of(self, project: str | None) -> Select[Secret]:
        if project is not None:
            return select(Secret).where(Secret.project == project)
        return select(Secret).where(Secret.user_id == self._caller.user_id)

    async def _check_may_list(self, session: AsyncSession, project: str | None) -> None:
        if project is None:
            self._check_own("list")
            return
        await self._check_project(session, project)
        if not self._caller.may(Action.SUBMIT, project):
            raise ForbiddenError(
                f"to list the secrets of project {project} takes the role "
                f"{needed_role(Action.SUBMIT)}; you have {self._caller.roles[project]}; "
                f"{who_gives_roles(project)}",
                project=project,
            )

    async def _check_may_change(self, session: AsyncSession, project: str | None) -> None:
        if project is None:
            self._check_own("change")
            if not self._caller.user_id:
                raise ConflictError(
                    "without accounts there are no secrets of a user; set it for a project"
                )
            return
        self._caller.check_manages(project, "change secrets")
        await self._check_project(session, project)
        if not await is_held(session, project):
            raise NotFoundError("project", project)

    def _check_own(self, verb: str) -> None:
        if self._caller.is_narrowed:
            raise ForbiddenError(
                f"a narrowed token may not {verb} the secrets of its user; log in, or use a whole "
                "token"
            )

    async def _check_project(self, session: AsyncSession, project: str) -> None:
        may = self._caller.may(Action.READ, project)
        if not may or await session.get(Project, project) is None:
            raise NotFoundError("project", project)

    async def _check_count(self, session: AsyncSession, project: str | None) -> None:
        count = await session.scalar(select(func.count()).select_from(self._of(project).subquery()))
        if (count or 0) >= MAX_SECRETS:
            raise ConflictError(f"there are {MAX_SECRETS} secrets already; remove some first")


def _check_value(value: str) -> None:
    # Never with the value itself, which errors show.
    if not value:
        raise InvalidValueError("value", None, "must not be empty")
    if "\0" in value:
        raise InvalidValueError("value", None, "may not hold a NUL byte")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidValueError("value", None, "is not valid text") from None
    if size > MAX_VALUE_BYTES:
        raise InvalidValueError("value", None, f"may have at most {MAX_VALUE_BYTES:,} bytes")


def _detail(project: str | None, text: str) -> str:
    return "; ".join(filter(None, ["the user's own" if project is None else "", text]))


def _needed(spec: Mapping[str, Any]) -> Sequence[str]:
    """Return the names of the secrets that the hosts of a stored spec need."""
    names: Sequence[str] = spec.get("secrets", ())
    code = git_code_of(spec)
    token = code.token if code is not None else None
    return names if token is None or token in names else [*names, token]
