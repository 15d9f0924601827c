"""Real agents, shims and ranks against a small coordinator: kills, absences, hostile scripts."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from support.cluster.agent_process import AgentProcess, agent_process, launch_of, script, until
from support.cluster.fake_coordinator import CREDENTIAL, TOKEN, FakeCoordinator
from support.holds import STEPS, TESTS, Gate

from trainhall.training.checkpoint.format.draft import Draft
from trainhall.training.checkpoint.format.manifest import Manifest
from trainhall.training.checkpoint.format.names import parse_name
from trainhall.training.fencing import FencingToken
from trainhall.training.link.frames import complete_frames
from trainhall.training.link.launch import CheckpointPlan, Launch, Unrecorded


@pytest.fixture
async def coordinator() -> AsyncIterator[FakeCoordinator]:
    fake = FakeCoordinator()
    async with fake.serving():
        yield fake


async def nothing_is_left(agent: AgentProcess, launch: Launch) -> None:
    """No process, folder or pipe of an attempt is left on the host."""
    await until("the attempt's folder to go", lambda: not list(agent.data_dir.glob("attempts/*")))
    await until("its checkpoints to go", lambda: not list(agent.data_dir.glob("checkpoints/*")))
    assert not agent.rank_pids()
    assert agent.process is not None
    children = psutil.Process(agent.process.pid).children
    await until("its dead children to be reaped", lambda: len(children()) <= 1)
    # The warm parent of an agent that was killed notices it once it has imported torch.
    await until("all but agent and warm parent to end", lambda: len(agent.processes()) <= 2)


def synthetic(steps: int, seconds: float = 0.01) -> dict[str, object]:
    return {
        "task": {"name": "synthetic", "params": {"step_seconds": seconds}},
        "resources": {"workers": 2},
        "training": {"steps": steps, "global_batch_size": 32},
    }


async def test_a_task_runs_from_start_to_forgotten(
    coordinator: FakeCoordinator, tmp_path: Path
) -> None:
    with agent_process(tmp_path, coordinator.url, TOKEN) as agent:
        launch = launch_of(synthetic(30))
        coordinator.want((launch, "run"))
        await until("it to complete", lambda: coordinator.outcome(launch) == "completed")
        await until("it to be shipped", lambda: coordinator.reported(launch).shipped)
        kinds = [e.kind for e in coordinator.events]
        assert kinds[:2] == ["packages", "started"]
        assert kinds[-1] == "completed"
        (checkpoint,) = [e.data["name"] for e in coordinator.events if e.kind == "checkpoint"]
        assert coordinator.committed == [checkpoint]
        assert coordinator.steps[-2:] == [f"commit {checkpoint}", f"event {checkpoint}"]
        assert len(coordinator.frames) == 2
        for frames in coordinator.frames.values():
            assert list(complete_frames(bytes(frames)))[-1].end == len(frames)
        coordinator.want()
        await nothing_is_left(agent, launch)


async def test_rank_uses_the_threads_of_its_slot(
    coordinator: FakeCoordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent has two slots. Somebody else's job may come to the other one."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with agent_process(tmp_path, coordinator.url, TOKEN) as agent:
        alone = launch_of(script(tmp_path, "import os\nprint(os.environ['OMP_NUM_THREADS'])\n"))
        coordinator.want((alone, "run"))
        await until("it to complete", lambda: coordinator.outcome(alone) == "completed")
        await until("it to be shipped", lambda: coordinator.reported(alone).shipped)
        share = max(1, (os.cpu_count() or 1) // 2)
        assert coordinator.log(alone) == f"{share}\n".encode()
        coordinator.want()
        await nothing_is_left(agent, alone)


COUNTING = """
import os, sys, time
lines, *gate = sys.argv[1:]
for i in range(int(lines)):
    while i == 30 and gate and not os.path.exists(gate[0]):
        time.sleep(0.01)
    print(f"line {i}", flush=True)
    time.sleep(0.01)
"""
"""Given a path, it waits at line 30 until something is there."""
LINES = 60


def counted(launch: Launch) -> bytes:
    return "".join(f"line {i}\n" for i in range(LINES)).encode()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_ranks_and_lines_outlive_the_agent(
    coordinator: FakeCoordinator, tmp_path: Path, number: signal.Signals
) -> None:
    with agent_process(tmp_path, coordinator.url, TOKEN) as agent:
        gate = tmp_path / "gate"
        launch = launch_of(script(tmp_path, COUNTING, str(LINES), str(gate), workers=2))
        coordinator.want((launch, "run"))
        await until("output", lambda: b"line 20\n" in coordinator.log(launch))
        ranks = agent.rank_pids()
        assert len(ranks) == 2
        await asyncio.to_thread(agent.end, number)
        assert agent.rank_pids() == ranks
        gate.touch()
        agent.start()
        await until("it to complete", lambda: coordinator.outcome(launch) == "completed")
        reported = coordinator.reported(launch)
        assert {r.rank: r.pid for r in reported.ranks} == ranks
        await until("it to be shipped", lambda: coordinator.reported(launch).shipped)
        for rank in range(2):
            assert coordinator.log(launch, rank) == counted(launch)
        assert coordinator.joins == 1
        coordinator.want()
        await nothing_is_left(agent, launch)


@pytest.mark.processes
async def test_the_end_comes_while_the_coordinator_is_away(tmp_path: Path) -> None:
    coordinator = FakeCoordinator()
    started = coordinator.serving()
    await started.__aenter__()
    with agent_process(tmp_path, coordinator.url, TOKEN) as agent:
        gate = tmp_path / "gate"
        launch = launch_of(script(tmp_path, COUNTING, str(LINES), str(gate)))
        coordinator.want((launch, "run"))
        await until("output", lambda: b"line 20\n" in coordinator.log(launch))
        ranks = agent.rank_pids()
        await started.__aexit__(None, None, None)
        seen = len(coordinator.reports)
        assert agent.rank_pids() == ranks
        gate.touch()
        await until("the script to end", lambda: not agent.rank_pids())
        async with coordinator.serving():
            await until("a report", lambda: len(coordinator.reports) > seen)
            await until("it to complete", lambda: coordinator.outcome(launch) == "completed")
            await until("it to be shipped", lambda: coordinator.reported(launch).shipped)
            assert coordinator.log(launch) == counted(launch)
            assert coordinator.joins == 1


async def test_stop_ends_the_process_tree(coordinator: FakeCoordinator, tmp_path: Path) -> None:
    note = tmp_path / "grandchild"
    text = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open(sys.argv[1] + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(sys.argv[1] + ".new", sys.argv[1])
        time.sleep(600)
    os._exit(0)
print("ready", flush=True)
time.sleep(600)
"""
    with agent_process(tmp_path, coordinator.url, TOKEN) as agent:
        launch = launch_of(script(tmp_path, text, str(note), grace_seconds=0.3))
        coordinator.want((launch, "run"))
        await until("the grandchild", note.exists)
        grandchild = int(note.read_text())
        coordinator.want((launch, "stop"))
        await until("it to stop", lambda: coordinator.outcome(launch) == "stopped")
        assert not psutil.pid_exists(grandchild)
        assert coordinator.reported(launch).ranks[0].signal == signal.SIGKILL
        coordinator.want()
        await nothing_is_left(agent, launch)


@pytest.mark.parametrize("seconds", [0.01, 600])
async def test_stop_does_not_wait_for_the_step(
    coordinator: FakeCoordinator, tmp_path: Path, seconds: float
) -> None:
    with agent_process(tmp_path, coordinator.url, TOKEN) as agent:
        launch = launch_of(synthetic(100000, seconds))
        coordinator.want((launch, "run"))
        await until("it to start", lambda: any(e.kind == "started" for e in coordinator.events))
        coordinator.want((launch, "stop"))
        await until("it to stop", lambda: coordinator.outcome(launch) == "stopped")
        assert not agent.rank_pids()


async def test_pause_saves_and_later_attempt_resumes(
    coordinator: FakeCoordinator, tmp_path: Path
) -> None:
    with agent_process(tmp_path, coordinator.url, TOKEN) as agent:
        first = launch_of(synthetic(100000))
        coordinator.want((first, "run"))
        await until("it to start", lambda: any(e.kind == "started" for e in coordinator.events))
        coordinator.want((first, "pause"))
        await until("it to pause", lambda: coordinator.outcome(first) == "paused")
        await until("it to be shipped", lambda: coordinator.reported(first).shipped)
        coordinator.want()
        await nothing_is_left(agent, first)
        (name,) = coordinator.committed
        saved = parse_name(name)
        assert saved is not None
        second = launch_of(synthetic(saved.step + 5, 0.0), attempt=2)
        second.checkpoint.resume = ["step-00009999-a1-g1", name]
        coordinator.want((second, "run"))
        await until("it to complete", lambda: coordinator.outcome(second) == "completed")
        started = [e.data for e in coordinator.events if e.kind == "started"]
        assert f"step-{started[1]['resumed_from']:08d}-a1-g1" == name


async def test_unavailable_checkpoint_fails_the_attempt(
    coordinator: FakeCoordinator, tmp_path: Path
) -> None:
    with agent_process(tmp_path, coordinator.url, TOKEN):
        launch = launch_of(synthetic(10), attempt=2)
        launch.checkpoint.resume = ["step-00000010-a1-g1"]
        coordinator.want((launch, "run"))
        await until("it to fail", lambda: coordinator.outcome(launch) == "failed")
        assert "no checkpoint to start from" in coordinator.reported(launch).failure.message


@pytest.mark.parametrize("task", [True, False])
async def test_first_failing_rank_is_reported(
    coordinator: FakeCoordinator, tmp_path: Path, task: bool
) -> None:
    with agent_process(tmp_path, coordinator.url, TOKEN) as agent:
        spec = synthetic(100000) if task else script(tmp_path, COUNTING, "100000", workers=2)
        launch = launch_of(spec)
        coordinator.want((launch, "run"))
        if task:
            await until("steps", lambda: any(e.kind == "started" for e in coordinator.events))
        else:
            await until("output", lambda: coordinator.log(launch, 1))
        os.kill(agent.rank_pids()[1], signal.SIGKILL)
        await until("it to fail", lambda: coordinator.outcome(launch) == "failed")
        failure = coordinator.reported(launch).failure
        assert (failure.rank, failure.signal) == (1, signal.SIGKILL)
        assert "SIGKILL" in failure.message
        assert not agent.rank_pids()


async def test_a_killed_shim_takes_its_ranks_along(
    coordinator: FakeCoordinator, tmp_path: Path
) -> None:
    with agent_process(tmp_path, coordinator.url, TOKEN) as agent:
        launch = launch_of(synthetic(100000))
        coordinator.want((launch, "run"))
        await until("it to start", lambda: any(e.kind == "started" for e in coordinator.events))
        shim = psutil.Process(agent.rank_pids()[0]).ppid()
        os.kill(shim, signal.SIGKILL)
        await until("it to fail", lambda: coordinator.outcome(launch) == "failed")
        assert "supervised" in coordinator.reported(launch).failure.message
        assert not agent.rank_pids()
        coordinator.want()
        await nothing_is_left(agent, launch)


async def test_checkpoint_of_killed_rank_is_reported_before_end(
    coordinator: FakeCoordinator, tmp_path: Path
) -> None:
    plan = CheckpointPlan(folder=str(tmp_path / "checkpoints"), upload=False)
    with agent_process(tmp_path, coordinator.url, TOKEN) as agent:
        launch = launch_of(synthetic(100000), checkpoint=plan)
        coordinator.want((launch, "run"))
        await until("it to start", lambda: any(e.kind == "started" for e in coordinator.events))
        draft = Draft.create(Path(plan.folder), FencingToken("job", 1, 1), 7)
        manifest = Manifest(
            job_id="job",
            attempt=1,
            generation=1,
            step=7,
            world_size=2,
            created_at="2026-01-01T00:00:00Z",
            files=[draft.write("state.json", [b"{}"])],
        )
        committed = draft.commit(manifest)
        os.kill(agent.rank_pids()[0], signal.SIGKILL)
        await until("it to fail", lambda: coordinator.outcome(launch) == "failed")
        await until("all to be shipped", lambda: coordinator.reported(launch).shipped)
        saved = [e.data for e in coordinator.events if e.kind == "checkpoint"]
        assert saved == [committed.event()]


async def test_next_attempt_starts_from_unreported_checkpoint(
    coordinator: FakeCoordinator, tmp_path: Path
) -> None:
    plan = CheckpointPlan(folder=str(tmp_path / "shared"), upload=False)
    with agent_process(tmp_path / "first", coordinator.url, TOKEN):
        first = launch_of(synthetic(100000), checkpoint=plan)
        coordinator.want((first, "run"))
        await until("it to start", lambda: any(e.kind == "started" for e in coordinator.events))
        coordinator.want((first, "pause"))
        await until("it to pause", lambda: coordinator.outcome(first) == "paused")
    (name,) = [path.name for path in (tmp_path / "shared").iterdir()]
    saved = parse_name(name)
    assert saved is not None
    after = Unrecorded(attempt=1, generation=1, after_step=-1)
    coordinator.events.clear()
    with agent_process(tmp_path / "second", coordinator.url, TOKEN):
        plan = plan.model_copy(update={"unrecorded": after})
        second = launch_of(synthetic(saved.step + 5, 0.0), attempt=2, checkpoint=plan)
        coordinator.want((second, "run"))
        await until("it to complete", lambda: coordinator.outcome(second) == "completed")
        await until("it to be shipped", lambda: coordinator.reported(second).shipped)
    (started,) = [e.data for e in coordinator.events if e.kind == "started"]
    assert started["resumed_from"] == saved.step
    assert name in [e.data["name"] for e in coordinator.events if e.kind == "checkpoint"]


async def test_ranks_outlive_the_warm_parent(
    coordinator: FakeCoordinator, tmp_path: Path, gate: Gate
) -> None:
    with agent_process(tmp_path, coordinator.url, TOKEN) as agent:
        spec = {**synthetic(STEPS), "task": gate.task("synthetic")}
        launch = launch_of(spec, code=TESTS)
        coordinator.want((launch, "run"))
        await until("it to start", lambda: any(e.kind == "started" for e in coordinator.events))
        (parent,) = agent.warm_parents()
        parent.kill()
        gate.open()
        await until("it to complete", lambda: coordinator.outcome(launch) == "completed")
        again = launch_of(synthetic(5), job_id="again")
        coordinator.want((again, "run"))
        await until("another one", lambda: coordinator.outcome(again) == "completed")


async def test_hostile_output_is_shipped_as_it_is(
    coordinator: FakeCoordinator, tmp_path: Path
) -> None:
    text = """
import sys
out = sys.stdout.buffer
out.write(b"\\xff\\xfe not utf-8 \\xc3\\x28\\n" + bytes(range(256)))
out.write(b"x" * 10_000_000 + b"\\n")
out.write(b"no end of line")
"""
    expected = b"\xff\xfe not utf-8 \xc3\x28\n" + bytes(range(256))
    expected += b"x" * 10_000_000 + b"\nno end of line"
    with agent_process(tmp_path, coordinator.url, TOKEN):
        launch = launch_of(script(tmp_path, text))
        coordinator.want((launch, "run"))
        await until("it to complete", lambda: coordinator.outcome(launch) == "completed")
        await until("it to be shipped", lambda: coordinator.reported(launch).shipped)
        assert coordinator.log(launch) == expected


async def test_an_ended_attempt_never_runs_again(
    coordinator: FakeCoordinator, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    text = "import sys\nwith open(sys.argv[1], 'a') as f: f.write('once\\n')\n"
    with agent_process(tmp_path, coordinator.url, TOKEN) as agent:
        launch = launch_of(script(tmp_path, text, str(ledger)))
        coordinator.want((launch, "run"))
        await until("it to complete", lambda: coordinator.outcome(launch) == "completed")
        coordinator.want()
        await nothing_is_left(agent, launch)
        await asyncio.to_thread(agent.end, signal.SIGKILL)
        agent.start()
        coordinator.want((launch, "run"))
        await until("a refusal", lambda: coordinator.outcome(launch) == "failed")
        assert "already ended" in coordinator.reported(launch).failure.message
        assert ledger.read_text() == "once\n"


GOODBYE = """
import signal, sys, time
def leave(*_):
    print("goodbye", flush=True)
    sys.exit(7)
signal.signal(signal.SIGTERM, leave)
print("ready", flush=True)
time.sleep(600)
"""


def ended_with_its_agent(coordinator: FakeCoordinator, *launches: Launch) -> bool:
    """The last report says that these attempts paused because the agent was stopped."""
    reports = [coordinator.reported(launch) for launch in launches]
    return all(
        t is not None and t.outcome == "paused" and t.agent_stopped and t.shipped for t in reports
    )


async def test_stopping_agent_has_its_ranks_save(
    coordinator: FakeCoordinator, tmp_path: Path
) -> None:
    with agent_process(tmp_path, coordinator.url, TOKEN, stop_ranks=True) as agent:
        task = launch_of(synthetic(100000))
        other = launch_of(script(tmp_path, GOODBYE), job_id="second")
        coordinator.want((task, "run"), (other, "run"))
        await until("both", lambda: coordinator.log(other) and coordinator.events)
        ending = asyncio.create_task(asyncio.to_thread(agent.end, signal.SIGINT))
        await until("their ends", lambda: ended_with_its_agent(coordinator, task, other))
        assert coordinator.last.stopping
        coordinator.want()
        assert await ending == 0
        assert agent.processes() == []
        assert not list(agent.data_dir.glob("attempts/*")), "what was told is forgotten"
        pipes = [p for p in agent.data_dir.rglob("*") if p.is_fifo() or p.is_socket()]
        assert pipes == []
        *_, checkpoint, paused = coordinator.events
        assert (checkpoint.kind, paused.kind) == ("checkpoint", "paused")
        assert coordinator.committed == [checkpoint.data["name"]]
        assert checkpoint.data["step"] == paused.data["step"]
        assert coordinator.log(other) == b"ready\ngoodbye\n"


async def test_stopping_agent_reports_that_its_ranks_continue(
    coordinator: FakeCoordinator, tmp_path: Path
) -> None:
    with agent_process(tmp_path, coordinator.url, TOKEN) as agent:
        launch = launch_of(script(tmp_path, GOODBYE))
        coordinator.want((launch, "run"))
        await until("it to run", lambda: coordinator.log(launch))
        assert await asyncio.to_thread(agent.end, signal.SIGTERM) == 0
        await until("its last report", lambda: coordinator.last.stopping)
        assert coordinator.reported(launch).outcome is None
        assert agent.rank_pids()
        *_, line = agent.output().splitlines()
        assert "agent_stopped attempts=1" in line
        assert "the next agent here adopts them" in line


@pytest.mark.processes
async def test_unreported_end_is_sent_by_next_agent(tmp_path: Path) -> None:
    coordinator = FakeCoordinator()
    with contextlib.ExitStack() as stack:
        async with coordinator.serving():
            agent = stack.enter_context(
                agent_process(tmp_path, coordinator.url, TOKEN, stop_ranks=True)
            )
            task = launch_of(synthetic(100000))
            other = launch_of(script(tmp_path, GOODBYE), job_id="second")
            coordinator.want((task, "run"), (other, "run"))
            await until("both", lambda: coordinator.log(other) and coordinator.events)
        assert await asyncio.to_thread(agent.end, signal.SIGTERM) == 0
        assert agent.processes() == []
        agent.start()
        async with coordinator.serving():
            await until("their ends", lambda: ended_with_its_agent(coordinator, task, other))
            assert not coordinator.last.stopping
            assert coordinator.committed
            assert coordinator.log(other) == b"ready\ngoodbye\n"
            coordinator.want()
            await nothing_is_left(agent, task)


@pytest.mark.parametrize("force", [True, False])
async def test_an_agent_waits_for_no_task_for_ever(
    coordinator: FakeCoordinator, tmp_path: Path, force: bool
) -> None:
    limit = 600.0 if force else 0.2
    with agent_process(
        tmp_path, coordinator.url, TOKEN, stop_ranks=True, save_seconds=limit
    ) as agent:
        task = launch_of(synthetic(100000, seconds=600))
        coordinator.want((task, "run"))
        await until("it to start", lambda: coordinator.events)
        ending = asyncio.create_task(asyncio.to_thread(agent.end, signal.SIGTERM))
        if force:
            mark = agent.data_dir / "attempts" / "job" / "a1-g1" / "agent-stopped"
            await until("the first signal to be heard", mark.exists)
            assert agent.process is not None
            agent.process.send_signal(signal.SIGTERM)
        else:
            await until("its end", lambda: coordinator.outcome(task) == "stopped")
            assert coordinator.reported(task).agent_stopped
            coordinator.want()
        assert await ending == 0
        assert agent.processes() == []
        if force:
            coordinator.reports.clear()
            agent.start()
            await until("its end", lambda: coordinator.outcome(task) == "stopped")
            assert coordinator.reported(task).agent_stopped


async def test_ranks_killed_by_second_signal_are_reported(
    coordinator: FakeCoordinator, tmp_path: Path
) -> None:
    with agent_process(tmp_path, coordinator.url, TOKEN, stop_ranks=True) as agent:
        task = launch_of(synthetic(100000, seconds=600))
        coordinator.want((task, "run"))
        await until("it to start", lambda: coordinator.events)
        assert agent.process is not None
        agent.process.send_signal(signal.SIGINT)
        mark = agent.data_dir / "attempts" / "job" / "a1-g1" / "agent-stopped"
        await until("the signal to be heard", mark.exists)
        for process in agent.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()
        agent.process.wait()
        agent.start()
        await until("its end", lambda: coordinator.outcome(task) == "stopped")
        assert coordinator.reported(task).agent_stopped
        assert coordinator.reported(task).failure is None


async def test_a_removed_node_ends_with_one_sentence(
    coordinator: FakeCoordinator, tmp_path: Path
) -> None:
    with agent_process(tmp_path, coordinator.url, TOKEN) as agent:
        launch = launch_of(script(tmp_path, COUNTING, "100000"))
        coordinator.want((launch, "run"))
        await until("output", lambda: coordinator.log(launch))
        coordinator.close_with = 4403
        process = agent.process
        assert process is not None
        await until("its end", lambda: process.poll() is not None)
        assert process.returncode == 1
        assert "was removed" in agent.output().splitlines()[-1]
        assert agent.processes() == []
        assert not (agent.data_dir / "agent.json").exists()


async def test_agent_reports_unusable_options_in_one_line(
    coordinator: FakeCoordinator, tmp_path: Path
) -> None:
    with agent_process(tmp_path / "bad", coordinator.url, "wrong") as agent:
        process = agent.process
        assert process is not None
        await until("its end", lambda: process.poll() is not None)
        assert "refuses to let this host join: the join token is unknown" in agent.output()
        assert "Traceback" not in agent.output()
    with agent_process(tmp_path / "good", coordinator.url, TOKEN) as agent:
        await until("a report", lambda: coordinator.reports)
        mode = (agent.data_dir / "agent.json").stat().st_mode & 0o777
        assert mode == 0o600
        other = AgentProcess(tmp_path / "good", coordinator.url, TOKEN)
        other.start()
        second = other.process
        assert second is not None
        await until("the second's end", lambda: second.poll() is not None)
        assert "another agent works in" in agent.output()
        assert "Traceback" not in agent.output()


async def test_new_token_replaces_a_refused_credential(
    coordinator: FakeCoordinator, tmp_path: Path
) -> None:
    with agent_process(tmp_path, coordinator.url, TOKEN) as agent:
        await until("a report", lambda: coordinator.reports)
        await asyncio.to_thread(agent.end, signal.SIGTERM)
        # Of a database that was lost, say.
        known = (agent.data_dir / "agent.json").read_text()
        (agent.data_dir / "agent.json").write_text(known.replace(CREDENTIAL, "void"))
        coordinator.reports.clear()
        agent.start()
        await until("a report", lambda: coordinator.reports)
        assert coordinator.joins == 2


async def test_deleted_checkpoints_are_removed_from_host(
    coordinator: FakeCoordinator, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "shared" / "step-00000010-a1-g1"
    precious = tmp_path / "shared" / "precious"
    for folder in (checkpoint, precious):
        folder.mkdir(parents=True)
        (folder / "manifest.json").touch()
    coordinator.remove = [str(checkpoint), str(precious)]
    with agent_process(tmp_path, coordinator.url, TOKEN):
        await until("the report", lambda: coordinator.reports and coordinator.last.removed)
        assert coordinator.last.removed == [str(checkpoint)]
        assert not checkpoint.exists()
        assert precious.exists()
        coordinator.remove = []
        await until("it to be forgotten", lambda: not coordinator.last.removed)
