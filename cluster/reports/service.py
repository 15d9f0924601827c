"""Reports of projects: created, listed, read, changed and deleted."""

import asyncio

from sqlalchemy import func, select
from sqlalchemy.orm import defer

from trainhall.cluster import pagination
from trainhall.cluster.access.ownership import hold_project, submission_project
from trainhall.cluster.access.roles import Action
from trainhall.cluster.access.visibility import ANYBODY, OwnerFilter, visible
from trainhall.cluster.errors import ConflictError
from trainhall.cluster.reports import views
from trainhall.cluster.service import Service, ServiceContext, load
from trainhall.db.reports import Report
from trainhall.db.views import rfc3339

MAX_REPORTS = 10_000
"""Reports of one project."""
MAX_TEXT = 50_000


class ReportService(Service):
    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context)
        self._creating = asyncio.Lock()
        """On Postgres two could take the same number."""

    async def list(
        self, *, limit: int = 50, cursor: str | None = None, of: OwnerFilter = ANYBODY
    ) -> views.ReportPage:
        """List reports, the newest first."""
        pagination.check_limit(limit)
        query = (
            select(Report)
            .where(*visible(self._caller, Report.project))
            .where(*of.conditions(Report.user, Report.project))
            .options(defer(Report.text))
            .order_by(Report.number.desc())
            .limit(limit + 1)
        )
        if cursor is not None:
            query = query.where(Report.number < pagination.decode_number("reports", cursor))
        async with self._db.session() as session:
            rows = (await session.scalars(query)).all()
        following = pagination.encode("reports", rows[limit - 1].number) if rows[limit:] else None
        items = [views.ReportSummary.of(row) for row in rows[:limit]]
        return views.ReportPage(items=items, next_cursor=following)

    async def get(self, report_id: str) -> views.Report:
        async with self._db.session() as session:
            report = await load(session, Report, report_id)
            self._caller.check(Action.READ, report, "report")
            return views.Report.of(report)

    async def create(self, title: str, text: str, project: str | None = None) -> views.Report:
        """Create a report.

        Args:
            project: None: the caller's default.

        Raises:
            ConflictError: the project has too many.
            ForbiddenError: the caller's role in the project is too low.
            InvalidValueError: there is no such project that they see.
        """
        now = self._clock.now()
        async with self._creating, self._db.transaction() as session:
            project = await submission_project(session, self._caller, project, self._clock)
            await hold_project(session, project)
            count = await session.scalar(select(func.count()).where(Report.project == project)) or 0
            if count >= MAX_REPORTS:
                raise ConflictError(
                    f"project {project} has {MAX_REPORTS} reports already; delete some first"
                )
            newest = await session.scalar(select(func.max(Report.number))) or 0
            report = Report(
                id=self._ids.new(), number=newest + 1, user=self._caller.user or None,
                project=project, title=title, text=text, version=1,
                created_at=now, updated_at=now,
            )  # fmt: skip
            session.add(report)
            self._audit(session, "report.create", report.id, project=report.project, detail=title)
            await session.flush()
            return views.Report.of(report)

    async def change(
        self,
        report_id: str,
        version: int,
        title: str | None,
        text: str | None,
        project: str | None = None,
    ) -> views.Report:
        """Change a report; None leaves a part as it is.

        Args:
            version: of the report that was edited.
            project: the one to move it to.

        Raises:
            ConflictError: it has been changed since.
            ForbiddenError: the caller's role is too low, here or in the other project.
            InvalidValueError: there is no such project that they see.
        """
        async with self._db.transaction() as session:
            report = await load(session, Report, report_id, locked=True)
            self._caller.check(Action.ANNOTATE, report, "report")
            if report.version != version:
                raise ConflictError(
                    f"the report was changed at {rfc3339(report.updated_at)}, after you opened it "
                    f"(you edited version {version}, the newest is {report.version}); read it "
                    "again and repeat your changes there"
                )
            if project is not None and project != report.project:
                self._caller.check(Action.COMMAND, report, "report")
                project = await submission_project(session, self._caller, project, self._clock)
                await hold_project(session, project)
            changes = {
                "title": (report.title, title or report.title),
                "project": (report.project, project or report.project),
            }
            self._audit(
                session, "report.change", report_id, project=report.project, changes=changes
            )
            report.project = project or report.project
            report.title = report.title if title is None else title
            report.text = report.text if text is None else text
            report.version += 1
            report.updated_at = self._clock.now()
            await session.flush()
            return views.Report.of(report)

    async def delete(self, report_id: str) -> None:
        async with self._db.transaction() as session:
            report = await load(session, Report, report_id, locked=True)
            self._caller.check(Action.COMMAND, report, "report")
            self._audit(
                session, "report.delete", report_id, project=report.project, detail=report.title
            )
            await session.delete(report)
