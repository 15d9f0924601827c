"""Two projects with a job and all that hangs on it in each, and the users who ask for them.

Whatever users gave a name to in a project has its mark, so that a mark in an answer to somebody
without a role there shows what has leaked.
"""

import asyncio
import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from types import MappingProxyType
from typing import Any

import orjson
from sqlalchemy import update
from support.archives import archive
from support.storage.frames import frame
from support.storage.stored import manifest, pieces

from trainhall.cluster.access.principal import SYSTEM, Principal
from trainhall.cluster.access.roles import Role
from trainhall.cluster.accounts.secrets import sha256, token_of
from trainhall.cluster.coordinator import Coordinator
from trainhall.cluster.experiments.spec import parse_experiment
from trainhall.cluster.lifecycle.reasons import EventCode
from trainhall.cluster.wire.outputs import Commit, File
from trainhall.db.accounts import ApiToken, Group, LoginSession, Member, Project, User
from trainhall.db.alerts import Alert, AlertDelivery
from trainhall.db.documents import Allocation
from trainhall.db.events import record_event
from trainhall.db.models import (
    Attempt,
    Checkpoint,
    Device,
    GradientRecord,
    Job,
    JobProgress,
    LogChunk,
    LogStream,
    Node,
    QueuePosition,
)
from trainhall.db.reports import Report, SavedView
from trainhall.training.link.frames import MetricTable
from trainhall.training.spec.parse import validate_spec

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
OWN, FOREIGN = "zqapples", "zqbananas"
"""The marks of the two projects, which begin their names."""
NODE = "node00000001"
STEP = 10
CHECKPOINT = f"step-{STEP:08d}-a1-g1"
FILE = "state.json"
ROLES = {
    "viewer": (OWN, Role.VIEWER),
    "member": (OWN, Role.MEMBER),
    "colleague": (OWN, Role.MEMBER),
    "maintainer": (OWN, Role.MAINTAINER),
    "stranger": (FOREIGN, Role.MEMBER),
    "grower": (FOREIGN, Role.MEMBER),
}
"""Users by their names behind the mark of their project, and their only role."""


def project_of(mark: str) -> str:
    return f"{mark}-project"


def user_of(who: str) -> str:
    return f"{ROLES[who][0]}-{who}" if who in ROLES else who


@dataclass(frozen=True)
class Things:
    """A job, and what hangs on it or belongs to the same owner and project."""

    mark: str
    owner: str
    job: str
    checkpoint: str
    report: str
    alert: str
    token: str
    """Id of an API token of the owner."""
    session: str
    view: str
    """Name of a saved view of the owner."""
    code: str
    """SHA-256 of uploaded code of the project."""
    group: str
    """Name of a group without members."""
    person: str
    """Name of a viewer of the project who sends no requests."""
    secret: str
    """Name of a secret of the project, and of one of the owner."""
    experiment: str = ""

    @property
    def project(self) -> str:
        return project_of(self.mark)

    @property
    def params(self) -> dict[str, str]:
        """Values of the parameters of paths, by their names."""
        return {
            "job_id": self.job, "checkpoint_id": self.checkpoint, "report_id": self.report,
            "alert_id": self.alert, "experiment_id": self.experiment, "token_id": self.token,
            "session_id": self.session, "sha256": self.code, "node_id": NODE, "step": str(STEP),
            "path": FILE, "name": self.view, "group": self.group, "person": self.person,
            "secret": self.secret,
        }  # fmt: skip

    @property
    def ids(self) -> set[str]:
        """Ids that nobody else may learn."""
        return {
            self.job, self.checkpoint, self.report, self.alert, self.token, self.session, self.code,
        } | ({self.experiment} if self.experiment else set())  # fmt: skip


@dataclass
class World:
    """The two projects in a coordinator's database."""

    coordinator: Coordinator
    tokens: dict[str, str] = field(default_factory=dict)
    """API tokens by who has them."""
    ids: dict[str, set[str]] = field(default_factory=lambda: {OWN: set(), FOREIGN: set()})
    """Ids in each project, by its mark."""
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    @classmethod
    async def make(cls, coordinator: Coordinator) -> "World":
        world = cls(coordinator)
        async with coordinator.db.transaction() as session:
            for mark in (OWN, FOREIGN):
                session.add(Project(name=project_of(mark), limits={}, created_at=NOW))
            await session.flush()
            for who in (*ROLES, "boss"):
                user = User(
                    id=f"u-{who}", name=user_of(who), is_admin=who == "boss",
                    created_at=NOW + timedelta(days=365),
                )  # fmt: skip
                session.add(user)
                await session.flush()
                if who in ROLES:
                    mark, role = ROLES[who]
                    session.add(
                        Member(id=f"m-{who}", project=project_of(mark), user_id=user.id, role=role)
                    )
                session.add(world._token(who, user.id))
            session.add(world._token("scraper", "u-boss", ["metrics"]))
            node = Node(
                id=NODE, name="host", state="ready", state_at=NOW, reason="", created_at=NOW,
            )  # fmt: skip
            session.add(node)
            await session.flush()
            for index in range(2):
                session.add(
                    Device(node_id=NODE, index=index, kind="cuda", name="H100", memory_total=2**30)
                )
        coordinator.heartbeats.mark_reported(NODE)
        # Each takes a device, and then each waits for one.
        for _ in range(2):
            for mark, who in ((OWN, "colleague"), (FOREIGN, "grower")):
                jobs = coordinator.jobs.limited_to(_principal(mark, who))
                job, _ = await jobs.submit(validate_spec(spec_of(mark)))
                world.ids[mark].add(job.id)

        async with asyncio.timeout(60):
            while len((await coordinator.jobs.list(states=["starting"])).items) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        return world

    def _token(self, who: str, user_id: str, scopes: list[str] | None = None) -> ApiToken:
        token = token_of(f"{who:a<43}")
        self.tokens[who] = token
        return ApiToken(
            id=f"t-{who}", sha256=sha256(token), user_id=user_id, name=who, created_at=NOW,
            scopes=scopes,
        )  # fmt: skip

    async def add(self, mark: str, who: str, *, experiment: bool = False) -> Things:
        """Add things of a user in a project; without an experiment it takes a fraction."""
        number = next(self._numbers)
        owner = _principal(mark, who)
        jobs = self.coordinator.jobs.limited_to(owner)
        digest = await self._upload(mark, owner, number)
        script = {"path": "train.py"}
        job, _ = await jobs.submit(validate_spec({**spec_of(mark), "code": digest,
                                                  "script": script}))  # fmt: skip
        await jobs.pause(job.id)
        things = Things(
            mark=mark, owner=user_of(who), job=job.id, checkpoint=f"c{number:011d}",
            report=f"r{number:011d}", alert=f"a{number:011d}", token=f"t{number:011d}",
            session=f"s{number:011d}", group=f"group-{number}",
            person=f"{mark}-person-{number}", view=f"{mark}-view-{number}", code=digest,
            secret=f"{mark}_{number}",
            experiment=await self._experiment(mark, owner) if experiment else "",
        )  # fmt: skip
        await self._add_run(things)
        await self._add_documents(things, number, f"u-{who}")
        for project, setter in ((things.project, SYSTEM), (None, owner)):
            secrets = self.coordinator.secrets.limited_to(setter)
            await secrets.set(project, things.secret, "hidden")
        self.ids[mark] |= things.ids
        return things

    async def _upload(self, mark: str, owner: Principal, number: int) -> str:
        digest, data = archive(**{"train.py": f"print('{mark} {number}')"})
        await self.coordinator.code.limited_to(owner).put(digest, pieces(data, 4096))
        return digest

    async def _experiment(self, mark: str, owner: Principal) -> str:
        wanted = {
            "name": f"{mark}-experiment", "kind": "sweep", "method": "grid", "job": spec_of(mark),
            "space": {f"parameters.{mark}_rate": [1]}, "objective": {"metric": f"{mark}_loss"},
        }  # fmt: skip
        service = self.coordinator.experiments.limited_to(owner)
        view, _ = await service.create(parse_experiment(orjson.dumps(wanted), "json"))
        await service.pause(view.id)
        return view.id

    async def _add_run(self, things: Things) -> None:
        """Add what an attempt of the job leaves."""
        mark, job_id = things.mark, things.job
        line = f"{mark}-line\n".encode()
        async with self.coordinator.db.transaction() as session:
            session.add(
                Attempt(
                    job_id=job_id, number=1, state="failed", reason=f"{mark}-failure",
                    world_size=1, allocation=Allocation([]), started_at=NOW, finished_at=NOW,
                    failure={"rank": 0, "message": f"{mark}-failure", "cause": "user_code"},
                )
            )  # fmt: skip
            await session.flush()
            await session.execute(
                update(Job).where(Job.id == job_id).values(attempt=1, generation=1)
            )
            await session.execute(
                update(JobProgress)
                .where(JobProgress.job_id == job_id)
                .values(step=STEP, metrics={f"{mark}_loss": 1.0}, ranges={f"{mark}_loss": [1, 2]})
            )
            session.add(
                Checkpoint(
                    id=things.checkpoint, job_id=job_id, attempt=1, generation=1, step=STEP,
                    name=CHECKPOINT, location="store:", size=1, state="committed", created_at=NOW,
                    metrics={f"{mark}_loss": 1.0},
                )
            )  # fmt: skip
            await record_event(
                session, job_id, time=NOW, kind="note", code=EventCode.NOTES_CHANGED,
                reason=f"{mark}-reason", attempt=1,
            )  # fmt: skip
            session.add(
                LogStream(
                    job_id=job_id, attempt=1, rank=0, stream="stdout", length=len(line),
                )
            )  # fmt: skip
            session.add(
                LogChunk(
                    job_id=job_id, seq=1_000, attempt=1, rank=0, stream="stdout", offset=0,
                    length=len(line), time=NOW, data=zlib.compress(line),
                )
            )  # fmt: skip
            columns = {"names": [f"{mark}.weight"], "norms": [1.0], "largest": [1.0]}
            session.add(
                GradientRecord(
                    job_id=job_id, attempt=1, step=STEP, time=NOW, request=0,
                    columns=zlib.compress(orjson.dumps(columns)), histograms=None,
                )
            )  # fmt: skip
            session.add(QueuePosition(job_id=job_id, since=NOW, until=NOW, position=1))
        ingest = self.coordinator.ingest
        points = MetricTable(None, [1], [1e9], {f"{mark}_loss": [1.0]})
        await ingest.metrics(job_id, 1, "rank-0", frame(1, points))
        store = self.coordinator.store
        files = {FILE: f'{{"{mark}": 1}}'.encode()}
        for path, data in {**files, "manifest.json": manifest(files, job_id, STEP)}.items():
            await store.put(job_id, CHECKPOINT, path, pieces(data, 4096))
        await store.commit(job_id, CHECKPOINT)
        uploads, content = self.coordinator.outputs.uploads, f"{mark}-output".encode()
        digest = hashlib.sha256(content).hexdigest()
        await uploads.receive(job_id, 1, digest, pieces(content, 4096), size=len(content))
        names = [FILE, f"{mark}.csv"]
        named = [
            File(path=name, size=len(content), sha256=digest, modified_at=NOW) for name in names
        ]
        await uploads.commit(job_id, 1, Commit(rank=0, files=named))

    async def _add_documents(self, things: Things, number: int, user_id: str) -> None:
        """Add what users write beside jobs."""
        mark = things.mark
        number *= 1_000  # routes number theirs from the last one on
        async with self.coordinator.db.transaction() as session:
            session.add(
                Report(
                    id=things.report, number=number, user=things.owner, project=things.project,
                    title=f"{mark}-title", text=f"{mark}-text", version=1, created_at=NOW,
                    updated_at=NOW,
                )
            )  # fmt: skip
            session.add(
                Alert(
                    id=things.alert, number=number, name=f"{mark}-alert", on=["job.failed"],
                    user=things.owner, scope_kind="project", scope_value=things.project,
                    waiting_seconds=60.0, disk_percent=90.0, target_kind="browser", enabled=True,
                    reason="", created_at=NOW,
                )
            )  # fmt: skip
            await session.flush()
            session.add(
                AlertDelivery(
                    alert_id=things.alert, condition="job.failed", text=f"{mark}-message",
                    subjects=[], subject_count=0, state="delivered", created_at=NOW,
                )
            )  # fmt: skip
            session.add(Group(name=things.group, created_at=NOW))
            person = User(
                id=f"p{number}", name=things.person, is_admin=False,
                created_at=NOW + timedelta(days=365),
            )  # fmt: skip
            session.add(person)
            await session.flush()
            session.add(
                Member(id=f"m{number}", project=things.project, user_id=person.id, role=Role.VIEWER)
            )
            view = {"state": [], "search": "", "query": "", "sort": "", "columns": [], "pinned": 0,
                    "group": None}  # fmt: skip
            session.add(SavedView(user=things.owner, name=things.view, view=view, created_at=NOW))
            session.add(
                ApiToken(
                    id=things.token, sha256=sha256(things.token), user_id=user_id,
                    name=f"{mark}-token-{number}", created_at=NOW,
                )
            )  # fmt: skip
            session.add(
                LoginSession(
                    id=things.session, sha256=sha256(things.session), user_id=user_id,
                    client=f"{mark}-browser", created_at=NOW, used_at=NOW,
                    expires_at=datetime.now(UTC) + timedelta(days=1),
                )
            )  # fmt: skip


def spec_of(mark: str) -> dict[str, Any]:
    """A job spec whose every text has a mark."""
    return {
        "name": f"{mark}-job", "project": project_of(mark), "tags": [f"{mark}-tag"],
        "notes": f"{mark}-notes", "parameters": {f"{mark}_rate": 1},
        "script": {"path": f"/srv/{mark}.py", "args": [f"--{mark}"]},
        "resources": {"workers": 1, "device": "cuda"},
    }  # fmt: skip


def _principal(mark: str, who: str) -> Principal:
    """Who makes things: with the role of a maintainer, whatever they have later."""
    roles = MappingProxyType({project_of(mark): Role.MAINTAINER})
    return Principal(user_of(who), False, "token", f"u-{who}", roles=roles)
