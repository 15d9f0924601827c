"""Storing and reading the fingerprints of data sets."""

from sqlalchemy import select

from trainhall.cluster.access.visibility import check_job
from trainhall.cluster.data_sets.views import JobDataSets, data_sets_view
from trainhall.cluster.errors import ConflictError
from trainhall.cluster.lifecycle.jobs import lock_job
from trainhall.cluster.lifecycle.reasons import EventCode
from trainhall.cluster.service import Service, load
from trainhall.cluster.wire.data_sets import DataReport
from trainhall.db.events import record_event
from trainhall.db.models import Job, Node
from trainhall.db.provenance import DataFingerprint


class DataService(Service):
    async def store(self, node_id: str, job_id: str, attempt: int, report: DataReport) -> None:
        """Store what the data sets of an attempt are on a host. The first host's report stays; of
        another one that differs, an event is recorded.

        Raises:
            ConflictError: the job has no such data set.
            NotFoundError: there is no such job.
        """
        async with self._db.transaction() as session:
            await lock_job(session, job_id)
            job = await load(session, Job, job_id)
            node = await session.get(Node, node_id)
            name = node.name if node is not None else node_id
            known = {given["name"] for given in job.spec.get("data") or ()}
            for found in report.items:
                if found.name not in known:
                    raise ConflictError(f"job {job_id} has no data set {found.name}")
                row = await session.get(DataFingerprint, (job_id, attempt, found.name))
                if row is None:
                    values = found.model_dump()
                    session.add(
                        DataFingerprint(
                            job_id=job_id, attempt=attempt, node=name,
                            prepared_at=self._clock.now(), **values,
                        )
                    )  # fmt: skip
                elif row.sha256 != found.sha256:
                    await session.flush()
                    await record_event(
                        session,
                        job_id,
                        time=self._clock.now(),
                        kind="note",
                        code=EventCode.DATA_DIFFERS,
                        reason=f"data set {found.name} is not the same on {row.node} and {name}",
                        attempt=attempt,
                        data={"name": found.name, "nodes": [row.node, name]},
                    )
        self._notifier.notify_viewers(job_id)

    async def read(self, job_id: str) -> JobDataSets:
        """Return the data sets of a job.

        Raises:
            NotFoundError: there is no such job that the caller sees.
        """
        async with self._db.session() as session:
            await check_job(session, self._caller, job_id)
            job = await load(session, Job, job_id)
            rows = await session.scalars(
                select(DataFingerprint).where(DataFingerprint.job_id == job_id)
            )
            return data_sets_view(job.spec, rows)
