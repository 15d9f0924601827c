"""Jobs, nodes and rank events as callers see them: what is given, and what is refused."""

import asyncio
import itertools
from datetime import timedelta
from typing import Any

import pytest
from support.cluster.simulated import SimulatedCluster, SimulatedNode, failure, spec
from support.storage.frames import frame, table

from trainhall.cluster.errors import (
    ConflictError,
    InvalidCursorError,
    InvalidValueError,
    NodeRemovedError,
    NotAllowedError,
    NotFoundError,
    ProtocolMismatchError,
    WrongStateError,
)
from trainhall.cluster.jobs.commands import Command
from trainhall.cluster.wire.protocol import DeviceInfo, JoinRequest
from trainhall.db.models import Attempt
from trainhall.monitoring.lineage import Origin
from trainhall.training.link.events import RankEvent
from trainhall.training.link.status import Outcome


async def test_jobs_are_listed_newest_first_in_pages(cluster: SimulatedCluster) -> None:
    jobs = cluster.coordinator.jobs
    ids = [(await jobs.submit(spec()))[0].id for _ in range(5)]
    await jobs.cancel(ids[2])
    seen: list[str] = []
    cursor = None
    for size in (2, 2, 1):
        page = await jobs.list(limit=2, cursor=cursor)
        assert len(page.items) == size
        seen += [view.id for view in page.items]
        cursor = page.next_cursor
    assert cursor is None
    assert seen == ids[::-1]
    cancelled = await jobs.list(states=["cancelled"])
    assert [view.id for view in cancelled.items] == [ids[2]]
    cursor = (await jobs.list(limit=1)).next_cursor
    assert cursor is not None
    for bad in (
        "",
        "x",
        "!!!",
        "W10",
        "ü",
        "a" * 600,
        cursor + "x",
    ):
        if bad:
            with pytest.raises(InvalidCursorError):
                await jobs.list(cursor=bad)
    with pytest.raises(InvalidValueError, match="limit"):
        await jobs.list(limit=0)
    with pytest.raises(InvalidValueError, match="state"):
        await jobs.list(states=["gone"])
    nodes_cursor = "WyJub2RlcyIsImEiXQ"
    with pytest.raises(InvalidCursorError):
        await jobs.list(cursor=nodes_cursor)


async def test_command_in_wrong_state_lists_allowed_commands(cluster: SimulatedCluster) -> None:
    jobs = cluster.coordinator.jobs
    job_id = await cluster.submit()
    with pytest.raises(
        WrongStateError, match=r"cannot be resumed: it is queued; only a paused job can be resumed"
    ):
        await jobs.resume(job_id)
    assert (await jobs.pause(job_id)).state == "paused"
    assert (await jobs.pause(job_id)).state == "paused"
    assert (await jobs.resume(job_id)).state == "queued"
    cancelled = await jobs.cancel(job_id)
    assert cancelled.state == "cancelled"
    assert cancelled.refused_commands[Command.RESTORE] == "It has no checkpoint to restore."
    with pytest.raises(WrongStateError, match=r"it is cancelled, which is final$"):
        await jobs.pause(job_id)
    with pytest.raises(
        WrongStateError, match=r"it is cancelled, which is final; restore one of its checkpoints"
    ):
        await jobs.resume(job_id)
    for command in (jobs.pause, jobs.resume, jobs.cancel, jobs.get, jobs.events, jobs.attempts):
        with pytest.raises(NotFoundError):
            await command("nothing")
    states = [e.data["state"] for e in (await jobs.events(job_id)).items]
    assert states == ["queued", "paused", "queued", "cancelled"]


@pytest.mark.side_by_side
async def test_concurrent_commands_end_in_one_state(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha")
    job_id = await cluster.submit()
    await cluster.run_until(job_id, "running")
    jobs = cluster.coordinator.jobs
    results = await asyncio.gather(
        jobs.pause(job_id), jobs.cancel(job_id), jobs.pause(job_id), return_exceptions=True
    )
    for result in results:
        assert not isinstance(result, Exception) or isinstance(result, WrongStateError)
    await cluster.run_until(job_id, "cancelled")
    await cluster.check()


async def test_events_page_upwards(cluster: SimulatedCluster) -> None:
    job_id = await cluster.submit()
    for _ in range(3):
        await cluster.coordinator.jobs.pause(job_id)
        await cluster.coordinator.jobs.resume(job_id)
    events = cluster.coordinator.jobs.events
    every = (await events(job_id)).items
    assert [e.seq for e in every] == sorted(e.seq for e in every)
    first = await events(job_id, limit=3)
    assert first.items == every[:3]
    rest = await events(job_id, cursor=first.next_cursor, limit=100)
    assert [*first.items, *rest.items] == every
    assert rest.next_cursor is None


def join_request(token: str, name: str = "host") -> JoinRequest:
    return JoinRequest(
        join_token=token,
        name=name,
        address="10.0.0.1",
        agent_version="1",
        devices=[DeviceInfo(index=0, kind="cpu", name="CPU", memory_total=1)],
    )


async def test_join_token_works_once_within_a_day(cluster: SimulatedCluster) -> None:
    nodes = cluster.coordinator.nodes
    late = await nodes.register("late")
    cluster.clock.advance(24 * 3600)
    with pytest.raises(NotAllowedError, match="expired"):
        await nodes.join(join_request(late.join_token))
    registered = await nodes.register(None, {"rack": "3"})
    wrong = join_request(registered.join_token).model_copy(update={"protocol_version": 99})
    with pytest.raises(ProtocolMismatchError, match="upgrade the coordinator"):
        await nodes.join(wrong)
    reply = await nodes.join(join_request(registered.join_token, "my host!"))
    assert await nodes.authenticate(reply.credential) == reply.node_id
    with pytest.raises(NotAllowedError):
        await nodes.authenticate("wrong")
    node = await nodes.get(reply.node_id)
    assert (node.name, node.state, node.labels) == ("my-host", "pending", {"rack": "3"})
    second = await nodes.join(join_request((await nodes.register(None)).join_token, "my host!"))
    assert (await nodes.get(second.node_id)).name == "my-host-2"


@pytest.mark.parametrize(("given", "name"), [("日本", "node-{}"), ("a" * 99 + "_b", "a" * 99)])
async def test_name_of_a_host_becomes_a_valid_one(
    cluster: SimulatedCluster, given: str, name: str
) -> None:
    nodes = cluster.coordinator.nodes
    reply = await nodes.join(join_request((await nodes.register()).join_token, given))
    assert (await nodes.get(reply.node_id)).name == name.format(reply.node_id)


@pytest.mark.side_by_side
async def test_hosts_of_one_name_join_at_once(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = cluster.coordinator.nodes
    tokens = [(await nodes.register()).join_token for _ in range(5)]
    joining = (nodes.join(join_request(token, "gpu")) for token in tokens[:4])
    replies = await asyncio.gather(*joining)
    names = {(await nodes.get(reply.node_id)).name for reply in replies}
    assert names == {"gpu", "gpu-2", "gpu-3", "gpu-4"}

    async def outdated(*_: object) -> str:
        return "gpu"

    monkeypatch.setattr("trainhall.cluster.nodes.service._free_name", outdated)
    with pytest.raises(ConflictError, match="named 'gpu' join at the same time"):
        await nodes.join(join_request(tokens[4], "gpu"))
    monkeypatch.undo()
    last = await nodes.join(join_request(tokens[4], "gpu"))
    assert (await nodes.get(last.node_id)).name == "gpu-5"


async def test_join_can_be_repeated_after_lost_reply(cluster: SimulatedCluster) -> None:
    nodes = cluster.coordinator.nodes
    registered = await nodes.register(None)
    node = SimulatedNode("my-host", 1)
    lost = await nodes.join(join_request(registered.join_token, node.name))
    assert await nodes.authenticate(lost.credential) == lost.node_id
    reply = await nodes.join(join_request(registered.join_token, node.name))
    assert reply.node_id == lost.node_id
    assert [n.name for n in (await nodes.list()).items] == ["my-host"]
    with pytest.raises(NotAllowedError):
        await nodes.authenticate(lost.credential)
    assert await nodes.authenticate(reply.credential) == reply.node_id
    # Once it has reported, the token is void for good: also while it is away.
    node.node_id = reply.node_id
    cluster.nodes[node.node_id] = node
    await cluster.connect(node)
    await cluster.settle()
    for state, seconds in (("ready", 0), ("suspect", 20), ("lost", 100)):
        cluster.clock.advance(seconds)
        if seconds:
            await cluster.disconnect(node)
            await cluster.settle()
        assert (await nodes.get(node.node_id)).state == state
        with pytest.raises(NotAllowedError, match="used before"):
            await nodes.join(join_request(registered.join_token, node.name))
    assert await nodes.authenticate(reply.credential) == reply.node_id


async def test_used_join_token_expires(cluster: SimulatedCluster) -> None:
    nodes = cluster.coordinator.nodes
    registered = await nodes.register("alpha")
    reply = await nodes.join(join_request(registered.join_token))
    cluster.clock.advance(24 * 3600)
    with pytest.raises(NotAllowedError, match="expired"):
        await nodes.join(join_request(registered.join_token))
    assert await nodes.authenticate(reply.credential) == reply.node_id


async def test_known_node_can_join_again_once(cluster: SimulatedCluster) -> None:
    nodes = cluster.coordinator.nodes
    alpha = await cluster.add_node("alpha")
    await cluster.disconnect(alpha)
    cluster.clock.advance(100)
    await cluster.settle()
    first = await nodes.register("alpha")
    second = await nodes.register("alpha")
    assert (first.replaced_token, second.replaced_token) == (False, True)
    replaced, token = first.join_token, second.join_token
    with pytest.raises(NotAllowedError, match="replaced by a later `trainhall nodes add`"):
        await nodes.join(join_request(replaced))
    await nodes.join(join_request(token))
    with pytest.raises(NotAllowedError, match="used before"):
        await nodes.join(join_request(token))


@pytest.mark.side_by_side
async def test_join_token_admits_one_of_two_hosts(cluster: SimulatedCluster) -> None:
    nodes = cluster.coordinator.nodes
    token = (await nodes.register("alpha")).join_token
    replies = await asyncio.gather(*(nodes.join(join_request(token)) for _ in range(4)))
    assert len({reply.node_id for reply in replies}) == 1
    asked = [nodes.authenticate(reply.credential) for reply in replies]
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(not isinstance(r, Exception) for r in results) == 1
    assert all(isinstance(r, NotAllowedError) for r in results if isinstance(r, Exception))


async def test_node_name_is_unique_unless_node_is_lost(cluster: SimulatedCluster) -> None:
    nodes = cluster.coordinator.nodes
    alpha = await cluster.add_node("alpha")
    with pytest.raises(ConflictError, match="is ready"):
        await nodes.register("alpha")
    for bad in ("", "a b", "-a", "a" * 200, "ä"):
        with pytest.raises(InvalidValueError, match="name"):
            await nodes.register(bad)
    with pytest.raises(InvalidValueError, match="labels"):
        await nodes.register("beta", {"a\n": "b"})
    await cluster.disconnect(alpha)
    cluster.clock.advance(20)
    await cluster.settle()
    again = await nodes.register("alpha")
    assert again.id == alpha.node_id
    old = await nodes.join(join_request(again.join_token))
    assert old.node_id == alpha.node_id
    assert await nodes.authenticate(old.credential) == alpha.node_id


async def test_credential_of_removed_node_is_refused(cluster: SimulatedCluster) -> None:
    nodes = cluster.coordinator.nodes
    reply = await nodes.join(join_request((await nodes.register("alpha")).join_token))
    await nodes.authenticate(reply.credential)
    assert await nodes.remove(reply.node_id) is None
    with pytest.raises(NodeRemovedError, match="node alpha was removed"):
        await nodes.authenticate(reply.credential)
    with pytest.raises(NotAllowedError):
        await nodes.authenticate("nobody's")
    with pytest.raises(NotFoundError):
        await nodes.remove(reply.node_id)


async def test_credential_is_refused_after_removal_of_busy_node(cluster: SimulatedCluster) -> None:
    nodes, node = cluster.coordinator.nodes, SimulatedNode("alpha", 1)
    reply = await nodes.join(join_request((await nodes.register("alpha")).join_token))
    node.node_id = reply.node_id
    cluster.nodes[node.node_id] = node
    await cluster.connect(node)
    job_id = await cluster.submit()
    await cluster.run_until(job_id, "running")
    assert await nodes.authenticate(reply.credential) == node.node_id
    assert await nodes.remove(node.node_id) is not None, "its job saves and moves first"
    await cluster.settle()
    await cluster.finish(job_id, Outcome.PAUSED)
    with pytest.raises(NodeRemovedError, match="node alpha was removed"):
        await nodes.authenticate(reply.credential)
    assert not cluster.coordinator.heartbeats.has_reported(node.node_id)


async def test_lost_node_is_removed_although_it_holds_devices(
    cluster: SimulatedCluster,
) -> None:
    alpha = await cluster.add_node("alpha", 1)
    job_id = await cluster.submit()
    await cluster.run_until(job_id, "running")
    await cluster.disconnect(alpha)
    cluster.clock.advance(100)
    await cluster.settle()
    assert (await cluster.job(job_id)).state == "recovering"
    assert "alpha is lost" in (await cluster.job(job_id)).reason
    assert await cluster.coordinator.nodes.remove(alpha.node_id) is None
    await cluster.settle()
    assert "no node has joined" in (await cluster.job(job_id)).reason
    await cluster.check()


async def test_summary_counts_nodes_devices_and_jobs(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 2)
    job_id = await cluster.submit()
    await cluster.run_until(job_id, "running")
    await cluster.submit(workers=5)
    summary = await cluster.coordinator.nodes.summary()
    assert (summary.nodes, summary.devices, summary.devices_busy) == (1, 2, 1)
    assert summary.jobs["running"] == summary.jobs["queued"] == 1
    assert summary.memory_total == 2 << 30


def rank_event(sequence: int, kind: str, **data: object) -> RankEvent:
    return RankEvent(sequence=sequence, time=1.7e9, rank=0, kind=kind, data=data)


@pytest.mark.side_by_side
async def test_repeated_rank_events_count_once(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha")
    job_id = await cluster.submit()
    accept = cluster.coordinator.rank_events.accept
    events = [rank_event(n, "note", message=f"note {n}\0") for n in range(1, 6)]
    for batch in ([events[0]], events[:3], events[:3], events[1:], events):
        acked = await accept(job_id, 1, "0-aaaaaaaa", batch)
        assert acked >= batch[-1].sequence
    await asyncio.gather(*(accept(job_id, 1, "0-bbbbbbbb", events) for _ in range(4)))
    notes = [e for e in (await cluster.coordinator.jobs.events(job_id)).items if e.kind == "note"]
    assert len(notes) == 10
    assert notes[0].reason == "note 1\ufffd"
    flood = [rank_event(n, "note", message="x") for n in range(1, 451)]
    assert await accept(job_id, 1, "0-cccccccc", flood) == 450
    assert await accept(job_id, 1, "0-cccccccc", []) == 450
    with pytest.raises(NotFoundError, match=rf"^there is no attempt '2 of “test” \({job_id}\)'$"):
        await accept(job_id, 2, "0-aaaaaaaa", events)


async def test_rank_events_update_progress(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha")
    job_id = await cluster.submit()
    await cluster.run_until(job_id, "running")
    await cluster.report_event(
        job_id, "started", {"resumed_from": None, "total_steps": 100, "samples": 5}
    )
    assert (await cluster.job(job_id)).total_steps == 100
    await cluster.report_event(
        job_id, "completed", {"steps": 100, "metrics": {"loss": float("nan"), "accuracy": 0.5}}
    )
    job = await cluster.job(job_id)
    assert job.step == 100
    assert job.metrics == {"loss": "NaN", "accuracy": 0.5}


async def test_start_step_of_unmanaged_script_is_unknown(
    cluster: SimulatedCluster,
) -> None:
    """Its earlier attempts' curves must not be hidden: its first reported step shows it."""
    await cluster.add_node("alpha")
    job_id = await cluster.submit()
    await cluster.run_until(job_id, "running")

    async def first_step() -> int | None:
        async with cluster.db.session() as session:
            attempt = await session.get(Attempt, (job_id, 1))
            assert attempt is not None
            return attempt.first_step

    async def reasons() -> list[str]:
        return [e.reason for e in (await cluster.coordinator.jobs.events(job_id)).items]

    await cluster.report_event(job_id, "started", {"total_steps": 100})
    assert await first_step() is None
    assert "began" in await reasons()
    assert "training from the first step" not in await reasons()
    # It loads after all, later: that stands.
    await cluster.report_event(job_id, "started", {"total_steps": 100, "resumed_from": 40})
    assert await first_step() == 41
    assert "resumed from step 40" in await reasons()


async def test_restarted_generation_does_not_change_attempts_start(
    cluster: SimulatedCluster,
) -> None:
    """Else the curve would have the steps of the earlier generation twice: an attempt before had
    taken them too."""
    await cluster.add_node("alpha")
    job_id = await cluster.submit()
    await cluster.run_until(job_id, "running")
    for generation, resumed in ((1, 39), (2, 40), (3, 20)):
        await cluster.report_event(
            job_id,
            "started",
            {"generation": generation, "total_steps": 100, "resumed_from": resumed},
        )
        async with cluster.db.session() as session:
            attempt = await session.get_one(Attempt, (job_id, 1))
            assert attempt.first_step == (40 if generation < 3 else 21)


async def test_restarted_generation_resets_the_jobs_step(
    cluster: SimulatedCluster,
) -> None:
    await cluster.add_node("alpha", slots=2)
    job_id = await cluster.submit(resources={"workers": 2})
    await cluster.run_until(job_id, "running")
    ingest = cluster.coordinator.ingest

    async def begin(generation: int, resumed: int | None) -> int:
        payload = {"generation": generation, "total_steps": 100, "resumed_from": resumed}
        await cluster.report_event(job_id, "started", payload)
        return (await cluster.job(job_id)).step

    assert await begin(1, None) == 0
    await ingest.metrics(job_id, 1, "0-a", frame(1, table([30], loss=[1.0])))
    assert await begin(2, 20) == 20
    await ingest.metrics(job_id, 1, "0-a", frame(2, table([31], loss=[1.0])), Origin(1))
    assert (await cluster.job(job_id)).step == 20
    await ingest.metrics(job_id, 1, "0-b", frame(1, table([21], loss=[1.0])), Origin(2))
    assert (await cluster.job(job_id)).step == 21
    await cluster.report_event(job_id, "stepped", {"generation": 2, "step": 21, "loaded": 1.0})
    async with cluster.db.session() as session:
        attempt = await session.get_one(Attempt, (job_id, 1))
        assert (attempt.began[2].restart_step, attempt.began[2].step) == (21, 21)


async def test_events_of_revoked_attempt_are_void(cluster: SimulatedCluster) -> None:
    alpha = await cluster.add_node("alpha", 1)
    job_id = await cluster.submit()
    await cluster.run_until(job_id, "running")
    await cluster.disconnect(alpha)
    cluster.clock.advance(100)
    await cluster.settle()
    numbers = itertools.count(1)
    events: list[tuple[str, dict[str, Any]]] = [
        ("checkpoint", {"name": "step-00000010-a1-g1", "step": 10, "size": 1}),
        ("completed", {"steps": 100, "metrics": {"loss": 1.0}}),
        ("started", {"total_steps": 7}),
    ]
    for kind, data in events:
        await cluster.coordinator.rank_events.accept(
            job_id, 1, "0-aaaaaaaa", [rank_event(next(numbers), kind, **data)]
        )
    job = await cluster.job(job_id)
    assert (job.state, job.step, job.total_steps, job.metrics) == ("recovering", 0, None, {})
    assert (await cluster.coordinator.checkpoints.list(job_id)).items == []
    notes = [
        e.reason for e in (await cluster.coordinator.jobs.events(job_id)).items if e.kind == "note"
    ]
    assert all("discarded" in note for note in notes)
    assert len(notes) == 3


async def test_odd_reports_of_ranks_break_no_view(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 1)
    job_id = await cluster.submit()
    await cluster.run_until(job_id, "running")
    metrics: dict[str, Any] = {
        "loss": [1.0],
        "accuracy": {"a": 1},
        "done": True,
        "none": None,
        "good": 0.5,
    }
    await cluster.report_event(job_id, "started", {"resumed_from": 2**63 - 1})
    await cluster.save_checkpoint(job_id, 7, **metrics)
    await cluster.report_event(job_id, "completed", {"steps": 9, "metrics": metrics})
    job = await cluster.job(job_id)
    assert (job.step, job.metrics) == (9, {"good": 0.5})
    (saved,) = (await cluster.coordinator.checkpoints.list(job_id)).items
    assert saved.metrics == {"good": 0.5}


async def test_a_failure_while_pausing_leaves_the_job_paused(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha")
    job_id = await cluster.submit()
    await cluster.run_until(job_id, "running")
    await cluster.coordinator.jobs.pause(job_id)
    await cluster.settle()
    await cluster.finish(job_id, Outcome.FAILED, failure())
    job = await cluster.job(job_id)
    assert job.state == "paused"
    assert "bad luck" in job.reason


async def test_run_time_is_never_negative(
    cluster: SimulatedCluster,
) -> None:
    await cluster.add_node("alpha")
    job_id = await cluster.submit()
    await cluster.run_until(job_id, "running")
    await cluster.finish(job_id)
    async with cluster.db.transaction() as session:
        attempt = await session.get_one(Attempt, (job_id, 1))
        attempt.finished_at = attempt.started_at - timedelta(hours=1)
    assert (await cluster.job(job_id)).ran_seconds == 0
