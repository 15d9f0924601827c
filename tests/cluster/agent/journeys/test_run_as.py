"""A job is not its agent: attacks of jobs that run as users of their own."""

import json
import os
import re
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.cluster.agent_process import launch_of, script, until
from support.cluster.fake_coordinator import CREDENTIAL, TOKEN, FakeCoordinator
from support.forking.run_as import RunAsAgent, a_range, a_user, needs_root, run_as_agent

from trainhall.cluster.agent.options import AgentError, OptionError
from trainhall.cluster.agent.run_as import NoFreeUserError, RunAs, parse_run_as
from trainhall.training.checkpoint.format.names import parse_name
from trainhall.training.link.launch import CheckpointPlan, Launch

WAITS = """
import os, sys, time
print("uid", os.getuid(), flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
"""
ATTACKS = """
import json, os, pathlib, sys
agent, victim, pid = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
own = pathlib.Path(os.environ["TRAINHALL_ATTEMPT_FOLDER"])
found = {}

def attack(name, work):
    try:
        found[name] = repr(work())
    except OSError as error:
        found[name] = None

attack("read the credential", lambda: (agent / "agent.json").read_text())
attack("replace the credential", lambda: (agent / "agent.json").unlink())
attack("read the agent's environment", lambda: open(f"/proc/{pid}/environ").read())
attack("read the agent's memory", lambda: open(f"/proc/{pid}/mem", "rb"))
attack("signal the agent", lambda: os.kill(int(pid), 0))
attack("list the attempts", lambda: os.listdir(agent / "attempts"))
attack("list the code of jobs", lambda: os.listdir(agent / "code"))
attack("read another's launch", lambda: (victim / "launch.json").read_text())
attack("write to another's log", lambda: (victim / "ranks/0/stdout.log").open("a").write("x"))
attack("move its own folder", lambda: own.rename(own.with_name("a9-g9")))
attack("become root", lambda: os.setuid(0))
status = pathlib.Path("/proc/self/status").read_text()
print(json.dumps({
    "attacks": found, "ids": [os.getresuid(), os.getresgid(), os.getgroups()],
    "home": os.environ["HOME"], "privileges": status.partition("NoNewPrivs:")[2].split()[0],
    "capabilities": status.partition("CapPrm:")[2].split()[0],
}), flush=True)
"""


@pytest.fixture
async def coordinator() -> AsyncIterator[FakeCoordinator]:
    fake = FakeCoordinator()
    async with fake.serving():
        yield fake


def of(agent: RunAsAgent, job_id: str, text: str, *arguments: str) -> Launch:
    folder = agent.folder / f"script-{job_id}"
    folder.mkdir(mode=0o755)
    return launch_of(script(folder, text, *arguments), job_id=job_id)


def folder_of(agent: RunAsAgent, launch: Launch) -> Path:
    return agent.data_dir / "attempts" / launch.job_id / "a1-g1"


def shipped(coordinator: FakeCoordinator, launch: Launch) -> bool:
    return bool(coordinator.reported(launch).shipped)


def ids(run_as: str) -> range:
    first, last = run_as.split("-")
    return range(int(first), int(last) + 1)


@pytest.mark.processes
@needs_root
async def test_job_reaches_neither_agent_nor_other_jobs(coordinator: FakeCoordinator) -> None:
    run_as = a_range()
    with run_as_agent(coordinator.url, TOKEN, run_as) as agent:
        victim = of(agent, "victim", WAITS, str(agent.folder / "gate"))
        coordinator.want((victim, "run"))
        await until("the victim", lambda: coordinator.log(victim))
        assert agent.process is not None
        hostile = of(
            agent, "hostile", ATTACKS,
            str(agent.data_dir), str(folder_of(agent, victim)), str(agent.process.pid),
        )  # fmt: skip
        coordinator.want((victim, "run"), (hostile, "run"))
        await until("its end", lambda: coordinator.outcome(hostile) == "completed")
        await until("its output", lambda: coordinator.reported(hostile).shipped)
        found: dict[str, Any] = json.loads(coordinator.log(hostile))
        assert {name for name, result in found["attacks"].items() if result is not None} == set()
        assert found["privileges"] == "1"
        assert int(found["capabilities"], 16) == 0
        (uid, *others), gids, groups = found["ids"]
        assert {uid, *others} <= set(ids(run_as))
        assert set(gids) | set(groups) <= set(ids(run_as))
        assert len(set(gids)) == 1
        assert found["home"] == str(folder_of(agent, hostile))
        assert uid != int(coordinator.log(victim).split()[1])
        assert CREDENTIAL in (agent.data_dir / "agent.json").read_text()
        (agent.folder / "gate").touch()
        await until("its end", lambda: coordinator.outcome(victim) == "completed")
        await until("its output", lambda: coordinator.reported(victim).shipped)
        assert re.fullmatch(rb"uid \d+\n", coordinator.log(victim))
        coordinator.want()
        await until("the folders to go", lambda: not list(agent.data_dir.glob("attempts/*")))


@pytest.mark.processes
@needs_root
async def test_jobs_of_one_user_do_not_reach_their_agent(coordinator: FakeCoordinator) -> None:
    with run_as_agent(coordinator.url, TOKEN, a_user()) as agent:
        assert agent.process is not None
        arguments = [str(agent.data_dir), "/nowhere", str(agent.process.pid)]
        hostile = of(agent, "hostile", ATTACKS, *arguments)
        coordinator.want((hostile, "run"))
        await until("its end", lambda: coordinator.outcome(hostile) == "completed")
        await until("its output", lambda: coordinator.reported(hostile).shipped)
        found: dict[str, Any] = json.loads(coordinator.log(hostile))
        assert {name for name, result in found["attacks"].items() if result is not None} == set()
        assert found["ids"][0][0] == parse_run_as(a_user()).owner("job", None, ()).uid


@pytest.mark.processes
@needs_root
async def test_next_agent_adopts_jobs_of_other_users(coordinator: FakeCoordinator) -> None:
    with run_as_agent(coordinator.url, TOKEN, a_range()) as agent:
        gate = agent.folder / "gate"
        jobs = [of(agent, name, WAITS, str(gate)) for name in ("ends", "stays")]
        coordinator.want((jobs[0], "run"), (jobs[1], "run"))
        for job in jobs:
            await until("its output", partial(coordinator.log, job))
        assert agent.process is not None
        agent.process.kill()
        agent.process.wait()
        # Without the option: what runs as other users still has to reach its folder.
        agent.run_as = ""
        agent.start()
        coordinator.want((jobs[0], "run"), (jobs[1], "stop"))
        await until("its end", lambda: coordinator.outcome(jobs[1]) == "stopped")
        gate.touch()
        await until("its end", lambda: coordinator.outcome(jobs[0]) == "completed")
        await until("its output", partial(shipped, coordinator, jobs[0]))
        coordinator.want()
        await until("the folders to go", lambda: not list(agent.data_dir.glob("attempts/*")))


LINKS = """
import os, pathlib, shutil, sys, time
folder = pathlib.Path(os.environ["TRAINHALL_ATTEMPT_FOLDER"])

def wait(gate):
    while not os.path.exists(gate):
        time.sleep(0.02)

print("a line", flush=True)
wait(sys.argv[2])
# Where it leads, the agent's own files would be read as this job's output.
(folder / "ranks").rename(folder / "moved")
(folder / "ranks").symlink_to(sys.argv[1])
wait(sys.argv[3])
"""


@pytest.mark.processes
@needs_root
async def test_links_in_its_folder_lead_the_agent_nowhere(coordinator: FakeCoordinator) -> None:
    with run_as_agent(coordinator.url, TOKEN, a_range()) as agent:
        secret = agent.folder / "secret"
        (secret / "0").mkdir(parents=True)
        secret.chmod(0o700)
        (secret / "0" / "stdout.log").write_text("a line\nof root's alone\n")
        (secret / "0" / "events.jsonl").write_text("{}\n")
        gates = [agent.folder / name for name in ("printed", "looked")]
        hostile = of(agent, "hostile", LINKS, str(secret), *map(str, gates))
        coordinator.want((hostile, "run"))
        await until("its first line", lambda: coordinator.log(hostile) == b"a line\n")
        gates[0].touch()
        await until("the link", lambda: list(agent.data_dir.glob("attempts/*/*/moved")))
        seen = len(coordinator.reports)
        await until("the agent to look again", lambda: len(coordinator.reports) > seen + 5)
        gates[1].touch()
        await until("its end", lambda: coordinator.outcome(hostile) is not None)
        await until("its output", lambda: coordinator.reported(hostile).shipped)
        assert b"root's" not in coordinator.log(hostile)
        assert coordinator.log(hostile) == b"a line\n"


@pytest.mark.processes
@needs_root
async def test_task_saves_and_its_next_attempt_resumes(coordinator: FakeCoordinator) -> None:
    spec = {
        "task": {"name": "synthetic", "params": {"step_seconds": 0.0}},
        "resources": {"workers": 2},
        "training": {"steps": 5, "global_batch_size": 32},
    }
    run_as = a_range()
    with run_as_agent(coordinator.url, TOKEN, run_as) as agent:
        first = launch_of(spec)
        coordinator.want((first, "run"))
        await until("its end", lambda: coordinator.outcome(first) == "completed")
        await until("it to be shipped", lambda: coordinator.reported(first).shipped)
        (name,) = coordinator.committed
        assert folder_of(agent, first).stat().st_uid in ids(run_as)
        coordinator.want()
        await until("its folder to go", lambda: not list(agent.data_dir.glob("checkpoints/*")))
        again = {**spec, "training": {"steps": 8, "global_batch_size": 32}}
        second = launch_of(again, attempt=2)
        second.checkpoint.resume = [name]
        coordinator.want((second, "run"))
        await until("its end", lambda: coordinator.outcome(second) == "completed")
        saved = parse_name(name)
        assert saved is not None
        started = [e.data for e in coordinator.events if e.kind == "started"]
        assert started[1]["resumed_from"] == saved.step


SHARED = """
import os, pathlib, sys
folder = pathlib.Path(sys.argv[1])
print(sorted(p.name + " " + p.read_text() for p in folder.glob("from-*")), flush=True)
(folder / f"from-{os.environ['TRAINHALL_JOB_ID']}").write_text(os.environ["TRAINHALL_JOB_ID"])
"""


@pytest.mark.processes
@needs_root
async def test_files_on_shared_storage_serve_the_same_project(
    coordinator: FakeCoordinator,
) -> None:
    with run_as_agent(coordinator.url, TOKEN, a_range()) as agent:
        storage = agent.folder / "storage"
        storage.mkdir()
        storage.chmod(0o777)
        plan = CheckpointPlan(folder=str(storage / "project"), upload=False)
        logs = []
        for job_id, project in (("one", "a"), ("two", "a"), ("three", "b")):
            launch = of(agent, job_id, SHARED, plan.folder)
            launch = launch.model_copy(
                update={
                    "checkpoint": plan,
                    "spec": launch.spec.model_copy(update={"project": project}),
                }
            )
            coordinator.want((launch, "run"))
            await until("its end", partial(coordinator.outcome, launch))
            await until("its output", partial(shipped, coordinator, launch))
            logs.append((coordinator.outcome(launch), coordinator.log(launch)))
            coordinator.want()
            await until("its folder to go", lambda: not list(agent.data_dir.glob("attempts/*")))
    assert logs == [
        ("completed", b"[]\n"), ("completed", b"['from-one one']\n"), ("failed", b"[]\n"),
    ]  # fmt: skip


def test_user_ids_follow_from_jobs_and_are_not_shared() -> None:
    jobs = RunAs(None, 70000, 70009)
    found = jobs.owner("job", "project", ())
    assert found == jobs.owner("job", "project", {70000 + (found.uid - 70000 + 1) % 10})
    other = jobs.owner("job", "project", {found.uid})
    assert other.uid != found.uid
    assert other.gid == found.gid
    with pytest.raises(NoFreeUserError, match="larger range"):
        jobs.owner("job", "project", range(70000, 70010))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("no-such-user", "no user of this host"), ("root", "changes nothing"),
        ("9-8", "between"), ("0-70000", "between"), ("70000-9999999999", "between"),
        ("1000-70000", "is nobody's|is nogroup's|is "),
    ],
)  # fmt: skip
def test_users_that_jobs_must_not_run_as_are_refused(text: str, why: str) -> None:
    with pytest.raises(OptionError, match=why):
        parse_run_as(text)


def test_agent_that_may_not_switch_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(AgentError, match="runs as root"):
        RunAs(None, 70000, 70009).check(tmp_path)
