"""A shim whose node is not heard any more ends its ranks by itself, in time."""

from pathlib import Path

import pytest
from support.cluster.agent_process import launch_of, script
from support.cluster.shims import Run
from support.forking.forks import Fork
from support.waiting import eventually

from trainhall.cluster.agent.shim import isolation
from trainhall.cluster.agent.shim.hang import stack_dumps
from trainhall.training.link.failure import Cause
from trainhall.training.link.status import Outcome, ShimStatus

TICKING = """
import os, signal, time
signal.signal(signal.SIGTERM, {on_term})
while True:
    with open("ticks", "a") as file:
        file.write(f"{{time.clock_gettime(time.CLOCK_BOOTTIME)}}\\n")
    time.sleep(0.02)
"""
LOST_AFTER = 60.0
"""Kills come 3 s earlier: enough for a busy machine."""


class HeartbeatRun(Run):
    """A shim of a script under the rule, whose node was heard last some seconds ago."""

    def __init__(self, folder: Path, on_term: str, seconds_ago: float) -> None:
        self.acked_at = isolation.now() - seconds_ago
        text = TICKING.format(on_term=on_term)
        spec = script(folder, text, on_isolation="stop", grace_seconds=1.0)
        super().__init__(folder / "attempt", launch_of(spec, isolation_seconds=LOST_AFTER))

    def start(self, *arguments: str) -> Fork:
        isolation.write_last_ack(self.folder, self.acked_at)
        return super().start(*arguments)

    def acknowledge_until(self, path: Path, seconds_ago: float) -> None:
        """Acknowledge reports, so that the time left begins only once `path` exists."""

        def exists() -> bool:
            self.acked_at = isolation.now() - seconds_ago
            isolation.write_last_ack(self.folder, self.acked_at)
            return path.exists()

        eventually(f"{path.name} exists", exists)

    def wait(self) -> ShimStatus:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return super().wait()


@pytest.mark.processes
@pytest.mark.parametrize(
    ("on_term", "outcome"),
    [("signal.SIG_DFL", Outcome.PAUSED), ("signal.SIG_IGN", Outcome.STOPPED)],
    ids=["ends", "stays"],
)
def test_a_script_ends_before_its_node_is_lost(
    tmp_path: Path, on_term: str, outcome: Outcome
) -> None:
    run = HeartbeatRun(tmp_path, on_term, seconds_ago=LOST_AFTER - 8.0)
    run.acknowledge_until(tmp_path / "ticks", seconds_ago=LOST_AFTER - 8.0)
    status = run.wait()
    assert (status.outcome, status.isolated) == (outcome, True)
    last = float((tmp_path / "ticks").read_text().splitlines()[-1])
    assert last - run.acked_at < LOST_AFTER


@pytest.mark.processes
def test_nothing_starts_once_the_time_is_over(tmp_path: Path) -> None:
    run = HeartbeatRun(tmp_path, "signal.SIG_DFL", seconds_ago=LOST_AFTER)
    status = run.wait()
    assert (status.outcome, status.isolated) == (Outcome.STOPPED, True)
    assert not (tmp_path / "ticks").exists()


HANGS = """
import os, time
from pathlib import Path
from trainhall.training.link.progress_writer import Progress
progress = Progress(Path(os.environ["TRAINHALL_ATTEMPT_FOLDER"]))
progress.begin(0)
progress.step(1)
time.sleep(600)
"""


class HangingRun(HeartbeatRun):
    """A shim of a script under the rule that hangs after its first step."""

    def __init__(self, folder: Path, lost_after: float) -> None:
        self.acked_at = isolation.now()
        spec = script(folder, HANGS, on_isolation="stop", grace_seconds=0.0, hang_seconds=1.0)
        Run.__init__(self, folder / "attempt", launch_of(spec, isolation_seconds=lost_after))


@pytest.mark.processes
@pytest.mark.parametrize("lost_after", [stack_dumps.LONGEST_SECONDS, 600.0])
def test_stack_dump_never_delays_the_end(tmp_path: Path, lost_after: float) -> None:
    run = HangingRun(tmp_path, lost_after)
    status = run.wait()
    assert status.failure is not None
    assert (status.outcome, status.failure.cause) == (Outcome.FAILED, Cause.HANG)
    is_dumped = (run.folder.rank(0) / "stacks.txt").exists()
    assert is_dumped == (lost_after == 600.0)
