"""Creation of jobs and experiments: once per request, however often the request is repeated."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.access.principal import Owned, Principal
from trainhall.cluster.access.roles import Action
from trainhall.cluster.errors import ConflictError, InvalidValueError
from trainhall.cluster.lifecycle.reasons import FOREIGN_JOB, experiment_label, job_label
from trainhall.cluster.service import ServiceContext, load
from trainhall.db.experiments import Experiment, IdempotencyKey
from trainhall.db.models import Job

_TRIES = 8

View = TypeVar("View")


class RequestKey(NamedTuple):
    """Idempotency key of a request."""

    key: str
    body_sha256: str


class Creation:
    """Creates jobs, or experiments, one after the other."""

    def __init__(self, context: ServiceContext, model: type[Job] | type[Experiment]) -> None:
        self._db = context.db
        self._clock = context.clock
        self._model = model
        self._turn = asyncio.Lock()

    async def once(
        self,
        caller: Principal,
        request: RequestKey | None,
        add: Callable[[AsyncSession], Awaitable[str]],
        view: Callable[[AsyncSession, str], Awaitable[View]],
    ) -> tuple[View, bool]:
        """Return a view of what the request creates, or created earlier, and whether it is new.

        Args:
            caller: whose key it is; another user's is another one.
            request: None: each call creates another one.
            add: adds the rows, and returns the id; called again if another caller took its number.

        Raises:
            ConflictError: the key was used with another body.
            InvalidValueError: the key is empty or too long.
        """
        if request is not None and not 1 <= len(request.key) <= 255:
            raise InvalidValueError("Idempotency-Key", request.key, "must have 1 to 255 characters")
        # A second coordinator on the same database loses the race for the number or the key on its
        # unique index and tries again.
        async with self._turn:
            for attempt in range(_TRIES):
                try:
                    async with self._db.transaction() as session:
                        if request is not None and (
                            known := await self._created(session, caller, request)
                        ):
                            return await view(session, known), False
                        new = await add(session)
                        if request is not None:
                            await self._keep(session, caller.user, request, new)
                        return await view(session, new), True
                except IntegrityError:
                    if attempt == _TRIES - 1:
                        raise
        raise AssertionError("the last try returns or raises")

    async def _keep(self, session: AsyncSession, user: str, request: RequestKey, new: str) -> None:
        key = IdempotencyKey(user=user, **request._asdict(), created_at=self._clock.now())
        if self._model is Job:
            key.job_id = new
        else:
            key.experiment_id = new
        session.add(key)
        await session.flush()

    async def _created(
        self, session: AsyncSession, caller: Principal, request: RequestKey
    ) -> str | None:
        """Return the id of what the key has created."""
        known = await session.get(IdempotencyKey, (caller.user, request.key))
        if known is None:
            return None
        earlier = known.job_id if self._model is Job else known.experiment_id
        if earlier is None or known.body_sha256 != request.body_sha256:
            raise ConflictError(
                f"Idempotency-Key {request.key!r} was used for another body, of "
                f"{await _label(session, caller, known)}; use a new key"
            )
        return earlier


async def _label(session: AsyncSession, caller: Principal, known: IdempotencyKey) -> str:
    """Return what a key has created, in a sentence: by name, if the caller still sees it."""
    if known.job_id is not None:
        job = await load(session, Job, known.job_id)
        return job_label(job.id, job.name) if _is_visible(caller, job) else FOREIGN_JOB
    assert known.experiment_id is not None
    experiment = await load(session, Experiment, known.experiment_id)
    if not _is_visible(caller, experiment):
        return "an experiment of another project"
    return experiment_label(experiment.id, experiment.name)


def _is_visible(caller: Principal, row: Owned) -> bool:
    return caller.may(Action.READ, row.project)
