"""Projects, and the roles of users and groups in them."""

import asyncio
from collections.abc import Mapping

from sqlalchemy import Select, select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster import pagination
from trainhall.cluster.access.limits import LIMITS_OF_NEW, ProjectLimits
from trainhall.cluster.access.names import check_unused, checked_name, composed
from trainhall.cluster.access.ownership import is_held
from trainhall.cluster.access.principal import Principal
from trainhall.cluster.access.roles import DEFAULT_PROJECT, Action, Role
from trainhall.cluster.access.visibility import visible
from trainhall.cluster.accounts.groups import active_user
from trainhall.cluster.accounts.service import AccountService
from trainhall.cluster.accounts.views import OwnProject
from trainhall.cluster.errors import ConflictError, InvalidValueError, NotFoundError
from trainhall.cluster.jobs.service import JobService
from trainhall.cluster.projects import views
from trainhall.cluster.projects.deletion import check_deletable, delete_contents, delete_project
from trainhall.cluster.service import Service, ServiceContext
from trainhall.db.accounts import Group, Member, Project, User

GROUP = "group:"
"""Prefix of members that are groups."""


class ProjectService(Service):
    """Projects, which admins change; their maintainers change the members."""

    def __init__(self, context: ServiceContext, accounts: AccountService, jobs: JobService) -> None:
        super().__init__(context)
        self._accounts = accounts
        self._jobs = jobs
        self._turn = asyncio.Lock()
        """Held while a name or a role is given."""

    async def own(self) -> list[OwnProject]:
        """List all projects that the caller sees by name, and the role there."""
        async with self._db.session() as session:
            names = await session.scalars(
                select(Project.name).where(*visible(self._caller, Project.name))
            )
            return [OwnProject(name=name, role=_role(self._caller, name)) for name in sorted(names)]

    async def list(self, *, limit: int = 50, cursor: str | None = None) -> views.ProjectPage:
        """List the projects that the caller sees by name: where they have a role; an admin all."""
        query = select(Project).where(*visible(self._caller, Project.name))
        async with self._db.session() as session:
            rows, following = await pagination.page_by_name(
                session, query, "projects", Project.name, limit, cursor
            )
        items = [self._view(project) for (project,) in rows]
        return views.ProjectPage(items=items, next_cursor=following)

    async def get(self, name: str) -> views.Project:
        """Return a project.

        Raises:
            NotFoundError: there is none that the caller sees.
        """
        async with self._db.session() as session:
            return self._view(await self._find(session, name))

    async def create(self, name: str, limits: ProjectLimits) -> views.Project:
        """Add a project without members; limits that are not given are those of new projects.

        Raises:
            ConflictError: there is one of this name.
            ForbiddenError: the caller is no admin.
            InvalidValueError: the name is not allowed.
        """
        name = checked_name(name)
        self._caller.check_admin("add projects")
        async with self._turn, self._db.transaction() as session:
            check_unused("project", name, await session.scalars(select(Project.name)))
            limited = {**_stored(LIMITS_OF_NEW), **_stored(limits)}
            project = Project(
                name=name, limits=limited, configured={}, created_at=self._clock.now()
            )
            session.add(project)
            await session.flush()
            self._audit(
                session, "project.create", name, project=name,
                changes={"limits": ({}, project.limits)},
            )  # fmt: skip
            view = self._view(project)
        self._accounts.forget_known()
        return view

    async def change(self, name: str, limits: ProjectLimits) -> views.Project:
        """Change the limits of a project: those that are given, null takes one away.

        Raises:
            ForbiddenError: the caller is no admin.
            InvalidValueError: the coordinator's configuration sets one.
            NotFoundError: there is none that they see.
        """
        async with self._db.transaction() as session:
            project = await self._find(session, name, locked=True)
            self._caller.check_admin("change the limits of projects")
            before = project.limits
            project.limits = {**before, **_unconfigured(project, limits)}
            changes = {"limits": (before, project.limits)}
            self._audit(
                session, "project.change", project.name, project=project.name, changes=changes
            )
            return self._view(project)

    async def configure(self, limits: Mapping[str, ProjectLimits]) -> None:
        """Set limits that the coordinator's configuration gives, and add projects that there are
        not yet. Limits that it gave before, and gives no longer, are again as admins set them.

        Raises:
            ConflictError: there is a project whose name differs by case alone.
            InvalidValueError: a name is not allowed.
        """
        configured = {checked_name(name): _stored(given) for name, given in limits.items()}
        async with self._turn, self._db.transaction() as session:
            known = {row.name: row for row in await session.scalars(select(Project))}
            for name in configured.keys() - known.keys():
                check_unused("project", name, known)
                new, now = _stored(LIMITS_OF_NEW), self._clock.now()
                known[name] = Project(name=name, limits=new, created_at=now)
                session.add(known[name])
            for name, project in known.items():
                project.configured = configured.get(name, {})

    async def delete(self, name: str, *, with_contents: bool = False) -> None:
        """Delete a project, with its roles and service accounts.

        Args:
            with_contents: delete its jobs, experiments and reports, too, which must have ended.
                If that fails on the way, the rest stays.

        Raises:
            ConflictError: something is in it, or has not ended, or it is the default project.
            ForbiddenError: the caller is no admin.
            NotFoundError: there is none that they see.
        """
        async with self._db.session() as session:
            name = (await self._find(session, name)).name
            self._caller.check_admin("delete projects")
            if name == DEFAULT_PROJECT:
                raise ConflictError(f"the project {name} cannot be deleted")
            await check_deletable(session, name, with_contents=with_contents)
        if with_contents:
            jobs = self._jobs.limited_to(self._caller)
            await delete_contents(self._db, jobs, self._caller, name, self._clock.now())
        async with self._db.transaction() as session:
            await delete_project(session, name, self._clock.now())
            self._audit(session, "project.delete", name, project=name)
        self._accounts.forget_known()

    async def members(
        self, name: str, *, limit: int = 50, cursor: str | None = None
    ) -> views.ProjectMemberPage:
        """List the members of a project.

        Raises:
            NotFoundError: there is none that the caller sees.
        """
        async with self._db.session() as session:
            project = await self._find(session, name)
            rows = await session.execute(
                select(Member.group, User.name, User.kind, Member.role)
                .outerjoin(User, User.id == Member.user_id)
                .where(Member.project == project.name)
                .order_by(User.name.is_not(None), Member.group, User.name)
            )
            found = [
                views.ProjectMember(
                    member=f"{GROUP}{group}" if group is not None else user,
                    kind="group" if group is not None else kind,
                    role=Role(role),
                )
                for group, user, kind, role in rows
            ]
        items, following = pagination.page_of("project members", found, limit, cursor)
        return views.ProjectMemberPage(items=items, next_cursor=following)

    async def set_member(self, name: str, member: str, role: Role) -> None:
        """Give a user or a group a role, in place of the one that it has.

        Args:
            member: name of a user, or `group:NAME`.

        Raises:
            ConflictError: it is a service account of another project.
            ForbiddenError: the caller is no maintainer.
            NotFoundError: there is no such project that they see, or no such member.
        """
        async with self._turn, self._db.transaction() as session:
            project = await self._managed(session, name)
            who = await _member(session, member)
            if isinstance(who, User) and who.project not in (None, project.name):
                raise ConflictError(f"{who.name} is a service account of another project")
            row = await session.scalar(_row_of(project.name, who))
            if row is None:
                row = Member(id=self._ids.new(), project=project.name)
                if isinstance(who, Group):
                    row.group = who.name
                else:
                    row.user_id = who.id
                session.add(row)
            before, row.role = row.role, role.value
            self._audit(
                session, "member.set", member, project=project.name,
                changes={"role": (before, role.value)},
            )  # fmt: skip
        self._accounts.forget_known()

    async def remove_member(self, name: str, member: str) -> None:
        """Take the role of a user or a group away.

        Raises:
            ForbiddenError: the caller is no maintainer.
            NotFoundError: there is no such project that they see, or no such member.
        """
        async with self._db.transaction() as session:
            project = await self._managed(session, name)
            row = await session.scalar(_row_of(project.name, await _member(session, member)))
            if row is None:
                raise NotFoundError("member", member)
            await session.delete(row)
            self._audit(
                session, "member.remove", member, project=project.name,
                changes={"role": (row.role, None)},
            )  # fmt: skip
        self._accounts.forget_known()

    async def _managed(self, session: AsyncSession, name: str) -> Project:
        project = await self._find(session, name)
        self._caller.check_manages(project.name, "change members")
        if not await is_held(session, project.name):
            raise NotFoundError("project", name)
        return project

    async def _find(self, session: AsyncSession, name: str, *, locked: bool = False) -> Project:
        name = composed(name)
        project = None
        if self._caller.may(Action.READ, name):
            project = await session.get(Project, name, with_for_update=locked)
        if project is None:
            raise NotFoundError("project", name)
        return project

    def _view(self, project: Project) -> views.Project:
        return views.Project(
            name=project.name,
            role=_role(self._caller, project.name),
            limits=ProjectLimits.model_validate(project.effective_limits),
            configured=sorted(project.configured),
            created_at=project.created_at,
        )


def _role(caller: Principal, project: str) -> Role:
    return Role.MAINTAINER if caller.is_admin else caller.roles[project]


def _stored(limits: ProjectLimits) -> dict[str, object]:
    return limits.model_dump(mode="json", exclude_unset=True)


def _unconfigured(project: Project, limits: ProjectLimits) -> dict[str, object]:
    """Return limits without those that the configuration sets to the same.

    Raises:
        InvalidValueError: it sets one to another value.
    """
    given = _stored(limits)
    for name in given.keys() & project.configured.keys():
        if (value := given.pop(name)) != project.configured[name]:
            raise InvalidValueError(
                f"limits.{name}",
                value,
                f"is set to {project.configured[name]} in the coordinator's configuration "
                f"([server.projects.{project.name}] of trainhall.toml); change it there, and "
                "restart the coordinator",
            )
    return given


async def _member(session: AsyncSession, member: str) -> User | Group:
    if not member.startswith(GROUP):
        return await active_user(session, member)
    group = await session.get(Group, composed(member.removeprefix(GROUP)))
    if group is None:
        raise NotFoundError("group", member.removeprefix(GROUP))
    return group


def _row_of(project: str, who: User | Group) -> Select[Member]:
    is_theirs = Member.group == who.name if isinstance(who, Group) else Member.user_id == who.id
    return select(Member).where(Member.project == project, is_theirs)
