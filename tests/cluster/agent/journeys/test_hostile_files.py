"""Real jobs that replace the files of their attempts, beside one that does not."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from support.cluster.agent_process import agent_process, launch_of, script, until
from support.cluster.fake_coordinator import TOKEN, FakeCoordinator

INNOCENT = """
import pathlib, sys, time
done = pathlib.Path(sys.argv[1])
number = 0
while not done.exists():
    print("line", number, flush=True)
    number += 1
    time.sleep(0.02)
print("end", flush=True)
"""
HOSTILE = """
import os, pathlib, shutil, sys, time
folder = pathlib.Path(os.environ["TRAINHALL_ATTEMPT_FOLDER"])

def clear(path):
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)

def garbage(path): path.write_text("[" * 100_000)
def pipe(path): clear(path); os.mkfifo(path)
def directory(path): clear(path); path.mkdir()
def endless(path): clear(path); path.symlink_to("/dev/zero")

attack = globals()[sys.argv[1]]
for _ in range(20):
    for name in sys.argv[2:]:
        attack(folder / name)
    time.sleep(0.05)
"""
FILES = ["status.json", "launch.json", "control.bin", "command.fifo", "ranks/0/stdout.log",
         "ranks/0/stderr.log", "ranks/0/events.jsonl", "ranks/0/metrics.bin"]  # fmt: skip


@pytest.fixture
async def coordinator() -> AsyncIterator[FakeCoordinator]:
    fake = FakeCoordinator()
    async with fake.serving():
        yield fake


async def test_jobs_that_replace_files_harm_no_other(
    coordinator: FakeCoordinator, tmp_path: Path
) -> None:
    done = tmp_path / "done"
    (tmp_path / "innocent").mkdir()
    with agent_process(tmp_path, coordinator.url, TOKEN) as agent:
        innocent = launch_of(script(tmp_path / "innocent", INNOCENT, str(done)), job_id="innocent")
        attacks = [
            launch_of(script(tmp_path, HOSTILE, attack, *files), job_id=f"{attack}{i}")
            for attack in ("garbage", "pipe", "directory", "endless")
            for i, files in enumerate((FILES, ["shim.lock"]))
        ]
        coordinator.want((innocent, "run"), *((each, "run") for each in attacks))
        for each in attacks:
            await until("its end", partial(coordinator.outcome, each))
        assert agent.process is not None
        assert agent.process.poll() is None, "the agent has ended"
        seen = len(coordinator.log(innocent))
        await until("more lines of the other", lambda: len(coordinator.log(innocent)) > seen)
        coordinator.want((innocent, "run"), *((each, "stop") for each in attacks))
        done.touch()
        await until("its end", lambda: coordinator.outcome(innocent) == "completed")
        await until("its output", lambda: coordinator.log(innocent).endswith(b"end\n"))
        coordinator.want()
        await until("the folders to go", lambda: not list(agent.data_dir.glob("attempts/*")))
        await asyncio.sleep(0)
        assert agent.process.poll() is None
