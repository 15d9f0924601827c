"""The code that users uploaded with their jobs, each once and under its SHA-256.

<data folder>/code/<sha256>            an archive that was received whole and checked
<data folder>/code/<sha256>.*.part     one that is being received
"""

import asyncio
import contextlib
import hashlib
import ipaddress
import os
import socket
import time
from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path

import structlog
from sqlalchemy import Connection, delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.access.ownership import hold_project, submission_project
from trainhall.cluster.access.principal import Owner
from trainhall.cluster.access.roles import Action
from trainhall.cluster.access.visibility import visible
from trainhall.cluster.errors import (
    DamagedError,
    InvalidValueError,
    NotFoundError,
    StorageFullError,
    TooLargeError,
    explain_full_disk,
)
from trainhall.cluster.jobs.views import Code
from trainhall.cluster.service import Service, ServiceContext
from trainhall.cluster.wire.code_archive import (
    MAX_ARCHIVE_BYTES,
    ArchiveError,
    file_names,
    inspect,
)
from trainhall.cluster.wire.code_names import holds_entry, holds_folder, near_name
from trainhall.db.accounts import ProjectCode
from trainhall.db.experiments import Experiment
from trainhall.db.models import Job, Node
from trainhall.monitoring.store import upsert
from trainhall.training.checkpoint.format.draft import fsync_folder
from trainhall.training.spec import JobSpec, SpecError, SpecProblem
from trainhall.training.spec.job import SHA256

log = structlog.get_logger(__name__)

_PART = ".part"
_INSPECTIONS = 2
"""At once: each unpacks up to 256 MiB."""
_OF_EXPERIMENTS = select(Experiment.code).where(
    Experiment.code.is_not(None), Experiment.finished_at.is_(None)
)
"""Code that trials still to be started need."""
_HOW = "the `trainhall` command uploads a folder, or PUT its tar to /api/v1/training/code/SHA256"


class _Arriving:
    """Archives that are on their way: what has come of them, whatever will."""

    bytes = 0


class CodeStore(Service):
    def __init__(self, context: ServiceContext, data_dir: Path) -> None:
        super().__init__(context)
        self._unused_limit = context.options.unused_code_bytes
        self._arriving = _Arriving()
        self._inspections = asyncio.Semaphore(_INSPECTIONS)
        self._folder = data_dir / "code"

    async def put(
        self, sha256: str, chunks: AsyncIterator[bytes], project: str | None = None
    ) -> tuple[Code, bool]:
        """Receive an archive for a project; returns it and whether it is new there. Repeating it is
        harmless.

        Args:
            project: None: the one that a submission would get.

        Raises:
            ForbiddenError: the caller may not submit to the project.
            InvalidValueError: it is no archive that may be unpacked, or there is no such project.
            TooLargeError: it is beyond the limit.
            StorageFullError: too much is kept that no job names, or the disk is full.
            DamagedError: what came is not what `sha256` says.
        """
        target = self._path(sha256)
        async with self._db.transaction() as session:
            project = await submission_project(session, self._caller, project, self._clock)
            is_known = await session.get(ProjectCode, (sha256, project)) is not None
        if is_known and await self._touch(target):
            # Read all the same: a sender does not read replies until it has sent all.
            async for _ in chunks:
                pass
            return await self.get(sha256), False
        part = target.with_name(f"{sha256}.{self._ids.new()}{_PART}")
        unused = await self._unused()
        arrived = 0

        async def counted() -> AsyncIterator[bytes]:
            nonlocal arrived
            async for chunk in chunks:
                arrived += len(chunk)
                self._arriving.bytes += len(chunk)
                self._check_space(unused)
                yield chunk

        try:
            self._check_space(unused)
            with explain_full_disk("free space there, then send it again"):
                await self._receive(sha256, counted(), part)
            try:
                async with self._inspections:
                    await asyncio.to_thread(inspect, part)
            except ArchiveError as error:
                raise InvalidValueError(
                    "body", None, f"the archive cannot be used: {error}"
                ) from None
            # Others may have been kept meanwhile.
            self._check_space(await self._unused())
            await asyncio.to_thread(part.replace, target)
            await asyncio.to_thread(fsync_folder, self._folder)
            async with self._db.transaction() as session:
                await hold_project(session, project)
                await self.keep(session, sha256, project)
                self._audit(session, "code.upload", sha256, project=project)
        finally:
            self._arriving.bytes -= arrived
            await asyncio.to_thread(part.unlink, missing_ok=True)
        return await self.get(sha256), True

    async def get(self, sha256: str) -> Code:
        """Return the archive that is stored under this hash.

        Raises:
            ForbiddenError: a project of the caller's has it, and they may not read its files.
            NotFoundError: none of their projects has it.
        """
        await self._check_projects(sha256)
        try:
            found = await asyncio.to_thread(self._path(sha256).stat)
        except FileNotFoundError:
            raise NotFoundError("code", sha256) from None
        return Code(sha256=sha256, size=found.st_size)

    async def keep(self, session: AsyncSession, sha256: str | None, project: str) -> None:
        """Record that a project has this code; None: it needs none."""
        if sha256 is None:
            return
        row = {"sha256": sha256, "project": project, "used_at": self._clock.now()}

        def insert(connection: Connection) -> None:
            connection.execute(upsert(connection, ProjectCode, ("sha256", "project")), [row])

        await (await session.connection()).run_sync(insert)

    async def _check_projects(self, sha256: str) -> None:
        if self._caller.is_admin:
            return
        projects = await self._projects(sha256)
        if not projects:
            raise NotFoundError("code", sha256)
        for project in projects:
            if self._caller.may(Action.READ_FILES, project):
                return
        self._caller.check(Action.READ_FILES, Owner(sha256, projects[0], None), "code")

    async def _projects(self, sha256: str) -> Sequence[str]:
        """Return those of the caller's projects that have this code."""
        found = select(ProjectCode.project).where(
            ProjectCode.sha256 == sha256, *visible(self._caller, ProjectCode.project)
        )
        async with self._db.session() as session:
            return (await session.scalars(found.order_by(ProjectCode.project))).all()

    async def _is_known(self, sha256: str) -> bool:
        """Return whether the caller may submit jobs with this code."""
        projects = await self._projects(sha256)
        return any(self._caller.may(Action.READ_FILES, project) for project in projects)

    def file(self, sha256: str) -> Path:
        """Return the path of the archive.

        Raises:
            NotFoundError: there is none.
        """
        path = self._path(sha256)
        if not path.is_file():
            raise NotFoundError("code", sha256)
        return path

    async def has(self, spec: JobSpec) -> bool:
        """Return whether a project of the caller's has a spec's code, if any; protects it from
        removal for a while.

        Raises:
            SpecError: it names a folder, which no coordinator can read; or a script that does not
                exist, as far as the coordinator can tell: in stored code, or on its own host if
                that is the only node.
        """
        if spec.code is None:
            await self._check_path_on_host(spec)
            return True
        if spec.git_code is not None:
            return True  # hosts clone it
        if spec.uploaded_code is None:
            raise _problem(str(spec.code), f"must be the SHA-256 of uploaded code; {_HOW}")
        sha256 = spec.uploaded_code
        if not (await self._is_known(sha256) and await self._touch(self._path(sha256))):
            return False
        await self._check_entry(spec)
        return True

    async def check(self, spec: JobSpec) -> None:
        """See that a spec's code is here, and keep it from being swept until the job is.

        Raises:
            SpecError: it is not, and was to be uploaded first; or as of `has`.
        """
        if not await self.has(spec):
            raise _problem(str(spec.code), f"no code with this SHA-256 was uploaded; {_HOW}")

    async def sweep(self, older_than_seconds: float) -> list[str]:
        """Remove what no job names and was untouched for so long; return it."""
        stale = await asyncio.to_thread(self._stale, older_than_seconds)
        if not stale:
            return []
        used = await self._used(stale)
        unused = [name for name in stale if name not in used]
        removed = await asyncio.to_thread(self._remove, unused, older_than_seconds)
        if removed:
            async with self._db.transaction() as session:
                await session.execute(delete(ProjectCode).where(ProjectCode.sha256.in_(removed)))
        return removed

    async def _check_entry(self, spec: JobSpec) -> None:
        """Check that stored code has the files of a script; absolute paths are the nodes' own.

        Raises:
            SpecError: it has not.
        """
        script, code = spec.script, spec.uploaded_code
        if script is None or code is None:
            return
        wanted = [("script.path", script.path, holds_entry),
                  ("script.working_dir", script.working_dir, holds_folder)]  # fmt: skip
        relative = [
            (field, given, holds)
            for field, given, holds in wanted
            if given is not None and not os.path.isabs(given)
        ]
        if not relative:
            return

        def find_problem() -> SpecProblem | None:
            names = file_names(self.file(code))
            for field, given, holds in relative:
                if not holds(names, given):
                    near = near_name(names, given)
                    hint = f"; did you mean {near}?" if near else ""
                    return SpecProblem(field, f"is not in the uploaded code{hint}", given)
            return None

        try:
            # In a thread: an archive may have 20,000 files.
            problem = await asyncio.to_thread(find_problem)
        except (ArchiveError, NotFoundError):
            return  # damaged or removed since it was received: agents verify what they fetch
        if problem is not None:
            raise SpecError([problem])

    async def _check_path_on_host(self, spec: JobSpec) -> None:
        """Check that the script exists, if the coordinator's host is the only node.

        Raises:
            SpecError: it does not.
        """
        path = spec.script.path if spec.script is not None else None
        if path is None or not await asyncio.to_thread(_is_missing, path):
            return
        async with self._db.session() as session:
            nodes = (await session.execute(select(Node.name, Node.address))).all()
        host = socket.gethostname()
        if nodes and all(name == host and _is_loopback(address) for name, address in nodes):
            message = f"does not exist on {host}, the only node"
            raise SpecError([SpecProblem("script.path", message, path)])

    async def _unused(self) -> int:
        """Return how many bytes are kept that no job names."""
        sizes = await asyncio.to_thread(self._sizes)
        used = await self._used(sizes)
        return sum(size for name, size in sizes.items() if name not in used)

    def _check_space(self, unused: int) -> None:
        """Check that there is space for what has come so far.

        Raises:
            StorageFullError: there is not.
        """
        if unused + self._arriving.bytes > self._unused_limit:
            raise StorageFullError(describe_full_store(self._unused_limit))

    async def _used(self, names: Collection[str]) -> set[str | None]:
        """Return those of the archives, and more, that a job or an unfinished experiment names."""
        async with self._db.session() as session:
            # By name, since a coordinator of years has many more jobs than archives.
            of_jobs = await session.scalars(select(Job.code).where(Job.code.in_(names)).distinct())
            return {*of_jobs, *await session.scalars(_OF_EXPERIMENTS)}

    def _sizes(self) -> dict[str, int]:
        """Return the size in bytes of each archive here."""
        found = {}
        for path in self._folder.glob("*"):
            with contextlib.suppress(FileNotFoundError):
                if SHA256.fullmatch(path.name):
                    found[path.name] = path.stat().st_size
        return found

    async def _receive(self, sha256: str, chunks: AsyncIterator[bytes], part: Path) -> None:
        digest, size = hashlib.sha256(), 0
        await asyncio.to_thread(self._folder.mkdir, parents=True, exist_ok=True)
        with await asyncio.to_thread(part.open, "xb") as file:
            async for chunk in chunks:
                size += len(chunk)
                if size > MAX_ARCHIVE_BYTES:
                    raise TooLargeError(MAX_ARCHIVE_BYTES)
                digest.update(chunk)
                await asyncio.to_thread(file.write, chunk)
            file.flush()
            await asyncio.to_thread(os.fsync, file.fileno())
        if digest.hexdigest() != sha256:
            raise DamagedError(
                f"the received archive has the SHA-256 {digest.hexdigest()}, not {sha256}"
            )

    def _path(self, sha256: str) -> Path:
        if not SHA256.fullmatch(sha256):
            raise NotFoundError("code", sha256[:80])
        return self._folder / sha256

    async def _touch(self, path: Path) -> bool:
        """Return whether the file exists; if so, it is not stale from now on."""
        try:
            await asyncio.to_thread(os.utime, path)
        except FileNotFoundError:
            return False
        return True

    def _stale(self, older_than_seconds: float) -> list[str]:
        found = []
        for path in self._folder.glob("*"):
            if _age(path) > older_than_seconds:
                if path.name.endswith(_PART):
                    path.unlink(missing_ok=True)
                elif SHA256.fullmatch(path.name):
                    found.append(path.name)
        return found

    def _remove(self, names: list[str], older_than_seconds: float) -> list[str]:
        removed = []
        for name in names:
            # A job that was submitted meanwhile has touched it.
            if _age(self._folder / name) > older_than_seconds:
                (self._folder / name).unlink(missing_ok=True)
                removed.append(name)
                log.info("unused_code_removed", sha256=name)
        return removed


def describe_full_store(limit: int) -> str:
    """Return the message for uploads beyond the limit."""
    return (
        f"the coordinator keeps at most {limit / 1024**3:g} GiB of code that no job uses; "
        "submit the jobs that it was uploaded for, or wait: unused code is deleted after an "
        "hour"
    )


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _is_missing(path: str) -> bool:
    """Return whether nothing is there. What this process may not look into may be there for an
    agent, which may run as another user."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _age(path: Path) -> float:
    """Return seconds since it was touched; file times are the host's, not the port's."""
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _problem(given: str, message: str) -> SpecError:
    return SpecError([SpecProblem("code", message, given)])
