"""Saved views of the list of jobs: filters, order, columns and groups."""

from collections.abc import Sequence

from sqlalchemy import delete, func, select
from sqlalchemy.exc import IntegrityError

from trainhall.cluster.errors import ConflictError, InvalidValueError, NotFoundError
from trainhall.cluster.jobs.listing import pages
from trainhall.cluster.jobs.listing.keys import GroupKey
from trainhall.cluster.jobs.listing.sorting import order_of
from trainhall.cluster.lifecycle.states import JobState
from trainhall.cluster.service import Service
from trainhall.db.reports import SavedView
from trainhall.db.views import Page, Time, View

MAX_VIEWS = 500


class ListView(View):
    """Filters, order, columns and groups of a list of jobs."""

    state: list[JobState]
    """Only jobs in one of these states; empty: in any."""
    search: str
    """Part of the name, or the beginning of the id."""
    query: str
    """Terms that all must match."""
    sort: str
    """Sort key; empty: the newest first."""
    columns: list[str]
    """Names of fields, `parameters.NAME`, `metrics.NAME`, `metrics.NAME.min` or `.max`, in their
    order; empty: the default ones."""
    pinned: int
    """So many of the first columns stay while the others scroll."""
    group: GroupKey | None
    """Field by whose values the jobs are counted; null: each is listed."""


class SavedListView(ListView):
    """View of the list of jobs under a name."""

    name: str
    created_at: Time


class SavedViewPage(Page[SavedListView]):
    """Saved views by name."""


class SavedViewService(Service):
    """A user's own views, and those from before there were users."""

    async def list(self) -> Sequence[SavedListView]:
        own = SavedView.user.in_(("", self._caller.user))
        order = (func.lower(SavedView.name), SavedView.user)
        async with self._db.session() as session:
            rows = await session.scalars(select(SavedView).where(own).order_by(*order))
            return [_view(row) for row in rows]

    async def save(self, name: str, view: ListView) -> SavedListView:
        """Save a view.

        Raises:
            ConflictError: there is one of that name.
            InvalidValueError: no list has such a state, query or sort key, or too many are saved.
        """
        now = self._clock.now()
        row = SavedView(
            user=self._caller.user,
            name=name,
            view=view.model_dump(mode="json"),
            created_at=now,
        )
        try:
            async with self._db.transaction() as session:
                order = await order_of(session, self._caller, view.sort, now)
                asked = pages.PageRequest(
                    limit=1,
                    states=view.state,
                    search=view.search or None,
                    query=view.query,
                    me="me",  # whoever opens it
                    caller=self._caller,
                )
                await pages.page_statement(session, asked, order, now)
                own = select(func.count()).where(SavedView.user == row.user)
                saved = await session.scalar(own) or 0
                if saved >= MAX_VIEWS:
                    message = f"{MAX_VIEWS} views are saved already; delete one first"
                    raise InvalidValueError("name", name, message)
                session.add(row)
                self._audit(session, "view.save", name)
                await session.flush()
                return _view(row)
        except IntegrityError:
            message = f"there is a view {name!r} already; use another name, or delete it first"
            raise ConflictError(message) from None

    async def delete(self, name: str) -> None:
        users = [self._caller.user, *([""] if self._caller.is_admin else [])]
        async with self._db.transaction() as session:
            done = await session.execute(
                delete(SavedView)
                .where(SavedView.name == name, SavedView.user.in_(users))
                .returning(SavedView.name)
            )
            if done.first() is None:
                raise NotFoundError("view", name)
            self._audit(session, "view.delete", name)


def _view(row: SavedView) -> SavedListView:
    return SavedListView(name=row.name, created_at=row.created_at, **row.view)
