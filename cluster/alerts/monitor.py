"""Monitor of what no event reports: lasting conditions, and the losses of jobs."""

import asyncio
import functools
import shutil
from pathlib import Path

import structlog
from sqlalchemy import Connection, delete, select
from sqlalchemy.exc import DBAPIError

from trainhall.cluster.alerts.lasting import Change, DiskUse, find_changes
from trainhall.cluster.alerts.loss_watch import LossFinding, LossWatch, replay
from trainhall.cluster.lifecycle.alerts import Condition, new_delivery, report_job
from trainhall.cluster.lifecycle.reasons import EventCode
from trainhall.cluster.lifecycle.states import ACTIVE_STATES
from trainhall.cluster.service import Service, ServiceContext
from trainhall.cluster.waiting import wait_until_set
from trainhall.db.alerts import Alert, AlertFiring
from trainhall.db.database import run_to_end
from trainhall.db.events import record_event
from trainhall.db.models import Event, Job
from trainhall.db.tracking.runs import Run
from trainhall.monitoring.points import Points, read_points
from trainhall.monitoring.store import LOSS
from trainhall.training.common.units import figure

log = structlog.get_logger(__name__)

_OF_LOSSES = {Condition.LOSS_NOT_FINITE, Condition.LOSS_SPIKE}
_CODES = {
    Condition.LOSS_NOT_FINITE: EventCode.LOSS_NOT_FINITE,
    Condition.LOSS_SPIKE: EventCode.LOSS_SPIKE,
}
_ACTIVE = select(Job.id, Job.attempt).where(Job.state.in_(sorted(ACTIVE_STATES)))


class AlertMonitor(Service):
    """Checks now and then, and at once after a change to the alerts.

    Args:
        data_dir: folder whose disk is watched; None: no disk of this host is.
    """

    def __init__(self, context: ServiceContext, data_dir: Path | None) -> None:
        super().__init__(context)
        self._data_dir = data_dir
        self._wanted = asyncio.Event()
        self.losses = LossWatch(self.wake)
        self._found: list[LossFinding] = []
        """Findings to be reported: kept while the database is away."""
        self._caught_up = False

    def wake(self) -> None:
        self._wanted.set()

    async def run(self) -> None:
        """Run until cancelled; without alerts there is nothing to check until `wake`."""
        while True:
            self._wanted.clear()
            any_alerts = True
            try:
                any_alerts = await run_to_end(self.check())
            except DBAPIError as error:
                log.error("alerts_not_checked", error=str(error.orig))
            pause = self._options.alerts.check_seconds if any_alerts else None
            await wait_until_set(self._wanted, pause)

    async def check(self) -> bool:
        """Store messages about what began since the last check; return whether there are alerts."""
        async with self._db.session() as session:
            asked = (await session.scalars(select(Alert.on).where(Alert.enabled.is_(True)))).all()
        conditions = {condition for on in asked for condition in on}
        self.losses.wanted = bool(conditions & _OF_LOSSES)
        if not self._caught_up and self.losses.wanted:
            await self._catch_up()
        self._caught_up = True
        self._found += self.losses.take()
        while self._found:
            await self._report_loss(self._found[0])
            del self._found[0]
        if self.losses.wanted:
            await self._forget_ended()
        else:
            self.losses.forget_all_but(())
        if not conditions:
            return False
        disk = None
        if self._data_dir is not None and Condition.DISK_FILLING in conditions:
            disk = await asyncio.to_thread(_disk_use, self._data_dir)
        find = functools.partial(
            find_changes, now=self._clock.now(), quotas=self._options.quotas, own_disk=disk
        )
        for change in await self._db.read(find):
            await self._store(change)
        return True

    async def _catch_up(self) -> None:
        """Compare the newest losses that are stored: a coordinator may have been killed before it
        reported them."""
        self.losses.hold()
        try:
            async with self._db.session() as session:
                jobs = (await session.execute(_ACTIVE)).all()
            for job_id, attempt in jobs:
                replayed = functools.partial(_replayed, job_id=job_id, attempt=attempt)
                self.losses.adopt(await self._db.read(replayed))
        finally:
            self.losses.release()

    async def _store(self, change: Change) -> None:
        now, alert_id, condition = self._clock.now(), change.alert_id, change.condition
        async with self._db.transaction() as session:
            alert = await session.get(Alert, alert_id, with_for_update=True)
            if alert is None or not alert.enabled or condition not in alert.on:
                return  # a user has changed or deleted it since
            await session.execute(
                delete(AlertFiring).where(
                    AlertFiring.alert_id == alert_id,
                    AlertFiring.condition == condition.value,
                    AlertFiring.subject.in_(change.ended),
                )
            )
            session.add_all(
                AlertFiring(
                    alert_id=alert_id, condition=condition.value, subject=holding.key, since=now
                )
                for holding in change.begun
            )
            if change.begun:
                subjects = [holding.subject for holding in change.begun]
                project = change.project
                session.add(new_delivery(alert_id, condition, change.text, subjects, now, project))

    async def _report_loss(self, finding: LossFinding) -> None:
        """Record the event in the job's timeline, with the messages about it."""
        now, text, code = self._clock.now(), _loss_text(finding), _CODES[finding.condition]
        reported = select(Event.data).where(
            Event.job_id == finding.job_id,
            Event.attempt == finding.attempt,
            Event.code == code.value,
        )
        try:
            async with self._db.transaction() as session:
                if any(data["step"] == finding.step for data in await session.scalars(reported)):
                    return
                await record_event(
                    session, finding.job_id, time=now, kind="note",
                    code=code, reason=text, attempt=finding.attempt,
                    data={"step": finding.step, "loss": finding.loss, "mean": finding.mean},
                )  # fmt: skip
                run = await session.get(Run, finding.job_id)
                if run is None or not run.imported:
                    await report_job(session, finding.job_id, finding.condition, text, now)
        except LookupError:
            return  # the job was deleted
        self._notifier.notify_viewers(finding.job_id)

    async def _forget_ended(self) -> None:
        async with self._db.session() as session:
            jobs = await session.scalars(_ACTIVE)
        self.losses.forget_all_but(jobs.all())


def _replayed(connection: Connection, job_id: str, attempt: int) -> LossWatch:
    points = read_points(connection, job_id, attempt, [LOSS])
    return replay(job_id, attempt, points.get((LOSS, False), Points.empty()))


def _loss_text(finding: LossFinding) -> str:
    if finding.condition is Condition.LOSS_NOT_FINITE:
        return f"the loss is {finding.loss} at step {finding.step:,}"
    return (
        f"the loss rose to {figure(finding.loss)} at step {finding.step:,}; "
        f"its running mean is {figure(finding.mean)}"
    )


def _disk_use(folder: Path) -> DiskUse | None:
    try:
        use = shutil.disk_usage(folder)
    except OSError:
        return None
    # As `df` counts: what is kept for root is not free.
    return DiskUse(use.used, use.used + use.free)
