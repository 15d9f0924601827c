"""Python environments of attempts: each is stored once, under its hash."""

import hashlib
from collections.abc import Sequence

import orjson
from sqlalchemy import Connection, delete, exists, select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.db.models import Attempt, PackageSet
from trainhall.db.views import View
from trainhall.monitoring.store import upsert
from trainhall.training.link.packages import Packages


class JobPackages(View):
    """Python environment of an attempt's rank 0; everything is null until that has reported it, and
    for a script whose interpreter is not Python."""

    attempt: int | None
    """Number of the attempt."""
    host: str | None
    """Name of the node of its first rank."""
    python: str | None
    os: str | None
    cuda: str | None
    """Version of CUDA that torch was built for; null for a CPU build, or without torch."""
    driver: str | None
    """Version of the NVIDIA driver; null on a host without one."""
    packages: dict[str, str]
    """Versions of the installed packages by normalized name, as in `scikit-learn`."""


_NONE = JobPackages(
    attempt=None, host=None, python=None, os=None, cuda=None, driver=None, packages={}
)


async def store(session: AsyncSession, attempt: Attempt, packages: Packages) -> None:
    """Store the environment that rank 0 of an attempt reports."""
    values = packages.model_dump()
    digest = hashlib.sha256(orjson.dumps(values, option=orjson.OPT_SORT_KEYS)).hexdigest()
    row = {"sha256": digest, **values}

    def insert(connection: Connection) -> None:
        # It locks an existing row, which `delete_unused` might be about to delete.
        connection.execute(upsert(connection, PackageSet, ("sha256",)), [row])

    before = attempt.package_set
    if before is not None and before < digest:
        # Rows are locked in one order: attempts that swap environments would block each other.
        await session.execute(
            select(PackageSet.sha256).where(PackageSet.sha256 == before).with_for_update()
        )
    connection = await session.connection()
    await connection.run_sync(insert)
    attempt.package_set = digest
    await session.flush()
    if before not in (None, digest):  # rank 0 was replaced
        await delete_unused(session, [before])


async def read(session: AsyncSession, job_id: str, attempt: int | None = None) -> JobPackages:
    """Return the environment of one attempt, or of the newest that reported one."""
    statement = (
        select(Attempt.number, Attempt.allocation, PackageSet)
        .join(PackageSet, PackageSet.sha256 == Attempt.package_set)
        .where(Attempt.job_id == job_id)
        .order_by(Attempt.number.desc())
        .limit(1)
    )
    if attempt is not None:
        statement = statement.where(Attempt.number == attempt)
    found = (await session.execute(statement)).first()
    if found is None:
        return _NONE
    number, allocation, packages = found
    host = next(iter(allocation.node_names), None)
    return JobPackages.of(packages, attempt=number, host=host)


async def sets_of(session: AsyncSession, job_id: str) -> Sequence[str]:
    """Return the hashes of the environments of a job."""
    of_job = select(Attempt.package_set).where(Attempt.job_id == job_id).distinct()
    return [found for found in await session.scalars(of_job) if found is not None]


async def delete_unused(session: AsyncSession, hashes: Sequence[str]) -> None:
    """Delete those environments that no attempt has any more."""
    unused = (
        PackageSet.sha256.in_(hashes),
        ~exists().where(Attempt.package_set == PackageSet.sha256),
    )
    # An attempt that takes one holds its row until it has committed: only behind the lock all
    # attempts are seen.
    locked = select(PackageSet.sha256).where(*unused).order_by(PackageSet.sha256).with_for_update()
    if (await session.scalars(locked)).all():
        await session.execute(delete(PackageSet).where(*unused))
