"""Checkpoints that were committed and not told: found when the ranks are gone, told once."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.cluster.agent_process import launch_of, until

from trainhall.cluster.agent.coordinator_link.http_api import RefusedError, Source, UnavailableError
from trainhall.cluster.agent.shipping.shipping import AttemptShipper, LinkPause
from trainhall.cluster.agent.shipping.unreported_checkpoints import (
    find_unrecorded,
    find_unreported,
)
from trainhall.cluster.wire.writers import recovery_writer
from trainhall.training.checkpoint.format.draft import Committed, Draft
from trainhall.training.checkpoint.format.manifest import Manifest
from trainhall.training.fencing import FencingToken
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.link.launch import CheckpointPlan, Launch, Unrecorded
from trainhall.training.link.spool import EventSpool


class Coordinator:
    """What was committed, in order; it may be away for a while."""

    def __init__(self) -> None:
        self.events: dict[str, list[dict[str, Any]]] = {}
        self.steps: list[str] = []
        self.uploaded: set[str] = set()
        self.attempts: set[int] = set()
        self.away = 0

    def names(self) -> list[str]:
        kinds = (e for events in self.events.values() for e in events)
        return [e["data"]["name"] for e in kinds if e["kind"] == "checkpoint"]

    def _answer(self) -> None:
        if self.away:
            self.away -= 1
            raise UnavailableError("away")

    async def send_events(self, source: Source, lines: bytes) -> int:
        self._answer()
        self.attempts.add(source.attempt)
        known = self.events.setdefault(source.writer, [])
        for event in map(json.loads, lines.splitlines()):
            if event["sequence"] > (known[-1]["sequence"] if known else 0):
                known.append(event)
                self.steps.append(f"{event['kind']} {event['data'].get('name', '')}".strip())
        return int(known[-1]["sequence"]) if known else 0

    async def put_file(
        self, job_id: str, name: str, path: str, file: Path, sha256: str, owner: object = None
    ) -> None:
        self._answer()
        self.uploaded.add(name)

    async def commit(self, job_id: str, name: str) -> None:
        if name not in self.uploaded:
            raise RefusedError(404, f"there is no upload {name}")
        self.steps.append(f"commit {name}")

    async def send_metrics(self, source: Source, frames: bytes) -> int:
        raise NotImplementedError

    async def send_logs(self, source: Source, stream: str, offset: int, data: bytes) -> int:
        raise NotImplementedError


class Attempt:
    """An attempt on this host, whose rank 0 commits and sometimes tells."""

    def __init__(self, tmp_path: Path, *, upload: bool = False, **changes: Any) -> None:
        self.checkpoints = tmp_path / "checkpoints"
        plan = CheckpointPlan(folder=str(self.checkpoints), upload=upload)
        spec = {"task": {"name": "synthetic"}, "resources": {"workers": 1}}
        self.launch: Launch = launch_of(spec, checkpoint=plan, **changes)
        self.folder = AttemptFolder(tmp_path / "attempt")
        self.folder.rank(0).mkdir(parents=True)
        self._events = EventSpool(self.folder.events(0), 0)

    def commit(
        self, step: int, *, report: bool = False, token: FencingToken = FencingToken("job", 1, 1)
    ) -> Committed:
        draft = Draft.create(self.checkpoints, token, step)
        draft.write("state.json", [b"{}"])
        committed = draft.commit(
            Manifest(
                job_id=token.job_id,
                attempt=token.attempt,
                generation=token.generation,
                step=step,
                created_at="2026-01-01T00:00:00Z",
                world_size=1,
                metrics={"loss": 0.5},
                files=draft.files,
            )
        )
        if report:
            self._events.append("checkpoint", committed.event())
        return committed

    def unreported(self) -> list[dict[str, Any]]:
        return [
            event.model_dump() for event in find_unreported(self.launch, [self.folder.events(0)])
        ]


@asynccontextmanager
async def shipping(attempt: Attempt, coordinator: Coordinator) -> AsyncIterator[AttemptShipper]:
    shipper = AttemptShipper(attempt.folder, attempt.launch, coordinator)  # type: ignore[arg-type]
    try:
        yield shipper
    finally:
        await shipper.close()


async def ship(shipper: AttemptShipper) -> None:
    """Until all is acknowledged, as the agent's loop does it."""
    backoff = LinkPause()

    def all_shipped() -> bool:
        return not shipper.start_growing(backoff, lambda: None)

    await until("all is shipped", all_shipped)


async def test_next_attempt_finds_commits_of_lost_host(
    tmp_path: Path,
) -> None:
    lost = Attempt(tmp_path)
    known, found = lost.commit(10, report=True), lost.commit(20)
    lost.commit(30, token=FencingToken("job", 7, 1))
    after = Unrecorded(attempt=1, generation=1, after_step=10)
    plan = lost.launch.checkpoint.model_copy(update={"unrecorded": after})
    other, coordinator = Attempt(tmp_path / "other"), Coordinator()
    other.launch = lost.launch.model_copy(update={"attempt": 2, "checkpoint": plan})
    assert find_unrecorded(other.launch) == [found.name]
    assert find_unrecorded(lost.launch) == []
    async with shipping(other, coordinator) as shipper:
        await ship(shipper)
    assert known.name not in coordinator.names()
    (event,) = coordinator.events[recovery_writer("job", 1, 1)]
    assert (event["kind"], event["data"]) == ("checkpoint", found.event())
    assert coordinator.attempts == {1}


@pytest.mark.parametrize("upload", [False, True])
async def test_unreported_commit_is_recorded(tmp_path: Path, upload: bool) -> None:
    attempt, coordinator = Attempt(tmp_path, upload=upload), Coordinator()
    first = attempt.commit(10, report=True)
    killed = attempt.commit(20)
    async with shipping(attempt, coordinator) as shipper:
        await ship(shipper)
        assert coordinator.names() == [first.name], "it may still be told"
        shipper.ended = True
        assert not shipper.shipped, "the job has to wait for what is found"
        coordinator.away = 1
        await ship(shipper)
        assert shipper.shipped
    assert coordinator.names() == [first.name, killed.name]
    (event,) = coordinator.events[recovery_writer("job", 1, 1)]
    assert (event["kind"], event["rank"], event["data"]) == ("checkpoint", 0, killed.event())
    if upload:
        reported_at = coordinator.steps.index(f"checkpoint {killed.name}")
        assert coordinator.steps.index(f"commit {killed.name}") < reported_at
    # Another agent knows nothing of this, and does no harm.
    async with shipping(attempt, coordinator) as shipper:
        shipper.ended = True
        await ship(shipper)
    assert coordinator.names() == [first.name, killed.name]


async def test_commit_of_new_generation_is_recorded(tmp_path: Path) -> None:
    """Rank 0 is a process now that began as another rank, and in the second generation."""
    attempt, coordinator = Attempt(tmp_path), Coordinator()
    old = attempt.commit(10)
    launch = attempt.launch.model_copy(update={"generation": 2})
    attempt.folder.rank(1).mkdir()
    events = EventSpool(attempt.folder.events(1, 2), 0)
    async with shipping(attempt, coordinator) as shipper:
        shipper.extend([(1, 2)])
        shipper.move(launch)
        late = attempt.commit(20, token=FencingToken("job", 1, 2))
        events.append("checkpoint", late.event())
        killed = attempt.commit(30, token=FencingToken("job", 1, 2))
        await ship(shipper)
        assert coordinator.names() == [late.name]
        shipper.ended = True
        await ship(shipper)
        assert shipper.shipped
    assert coordinator.names() == [late.name, killed.name], f"{old.name} would be refused"
    (event,) = coordinator.events[recovery_writer("job", 1, 2)]
    assert event["data"] == killed.event()


async def test_host_without_rank_0_searches_no_commits(tmp_path: Path) -> None:
    attempt, coordinator = Attempt(tmp_path), Coordinator()
    attempt.commit(10)
    async with shipping(attempt, coordinator) as shipper:
        (place,) = attempt.launch.ranks
        moved = place.model_copy(update={"rank": 1})
        shipper.move(attempt.launch.model_copy(update={"generation": 2, "ranks": [moved]}))
        shipper.ended = True
        await ship(shipper)
        assert shipper.shipped
    assert coordinator.names() == []


async def test_reported_uploads_come_first(tmp_path: Path) -> None:
    attempt, coordinator = Attempt(tmp_path, upload=True), Coordinator()
    names = [attempt.commit(step, report=step < 40).name for step in (10, 20, 30, 40, 50)]
    async with shipping(attempt, coordinator) as shipper:
        shipper.ended = True
        coordinator.away = 1
        await ship(shipper)
    # A newer one that was uploaded first would have made room by removing older ones.
    assert coordinator.names() == names


def test_unreported_search_covers_only_own_attempt(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path, attempt=2, generation=3)
    assert attempt.unreported() == [], "there is no folder yet"
    for token in (FencingToken("job", 1, 3), FencingToken("job", 2, 2), FencingToken("job", 3, 3)):
        attempt.commit(10, token=token)
    Draft.create(attempt.checkpoints, FencingToken("job", 2, 3), 30)
    (attempt.checkpoints / f"step-{2**63 - 1}-a2-g3").mkdir()
    assert attempt.unreported() == []
    second = attempt.commit(20, token=FencingToken("job", 2, 3))
    first = attempt.commit(10, token=FencingToken("job", 2, 3))
    reported = attempt.unreported()
    assert [e["data"]["name"] for e in reported] == [first.name, second.name]
    # What is found beside it changes no event's number.
    assert [e["sequence"] for e in reported] == [11, 21]


def test_truncated_event_line_is_ignored(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path)
    attempt.commit(10, report=True)
    incomplete = attempt.commit(20, report=True)
    events = attempt.folder.events(0)
    events.write_bytes(events.read_bytes()[:-1])
    assert [e["data"]["name"] for e in attempt.unreported()] == [incomplete.name]


@pytest.mark.parametrize("damage", ["file", "manifest", "job"])
def test_incomplete_checkpoint_is_reported_as_not_saved(tmp_path: Path, damage: str) -> None:
    attempt = Attempt(tmp_path)
    token = FencingToken("other" if damage == "job" else "job", 1, 1)
    path = attempt.commit(10, token=token).path
    match damage:
        case "file":
            (path / "state.json").write_bytes(b"[]")
        case "manifest":
            (path / "manifest.json").unlink()
    good = attempt.commit(20)
    unsaved, reported = attempt.unreported()
    assert (unsaved["kind"], unsaved["data"]["step"]) == ("not_saved", 10)
    assert "step-00000010-a1-g1 was found and is not recorded: " in unsaved["data"]["message"]
    assert reported["data"] == good.event()


def test_unsearchable_folder_is_reported(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path)
    attempt.checkpoints.touch()
    (note,) = attempt.unreported()
    assert note["kind"] == "note"
    assert "could not be searched for checkpoints: Not a directory" in note["data"]["message"]


async def test_host_without_rank_0_looks_for_nothing(tmp_path: Path) -> None:
    attempt, coordinator = Attempt(tmp_path), Coordinator()
    attempt.commit(10)
    place = attempt.launch.ranks[0].model_copy(update={"rank": 1})
    attempt.launch = attempt.launch.model_copy(update={"ranks": [place], "node_rank": 1})
    async with shipping(attempt, coordinator) as shipper:
        shipper.ended = True
        await ship(shipper)
        assert shipper.shipped
    assert coordinator.events == {}
