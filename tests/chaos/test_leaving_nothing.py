"""Whoever plays scenarios may be killed: processes, networks and mounts go with it."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from support.waiting import eventually

from chaos.network import why_not_root

pytestmark = pytest.mark.acceptance

TESTS = str(Path(__file__).parents[1])
# A cluster without agents is enough: what they start is found in the same way.
PLAYING = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from chaos.clusters import Shape, chaos_cluster
folder, root = Path(sys.argv[1]), sys.argv[2] == "root"
with chaos_cluster(folder, Shape(hosts=0, own_network=root, small_disks=root)):
    print("playing", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_killed_player_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    folder = tmp_path / "cluster"
    with subprocess.Popen(
        [sys.executable, "-c", PLAYING, str(folder), _may(), TESTS],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as player:  # fmt: skip
        assert player.stdout is not None
        assert player.stdout.readline() == b"playing\n"
        assert _left(folder)
        if _may() == "root":
            assert _mounts(folder)
            assert _networks(player.pid)
        player.send_signal(number)
    eventually("every process to be gone", lambda: not _left(folder))
    eventually("every mount to be gone", lambda: not _mounts(folder))
    if _may() == "root":
        # They have a guard of their own.
        eventually("every network to be gone", lambda: not _networks(player.pid))


def _may() -> str:
    return "user" if why_not_root() else "root"


def _mounts(folder: Path) -> list[str]:
    return [line for line in Path("/proc/mounts").read_text().splitlines() if str(folder) in line]


def _networks(pid: int) -> list[str]:
    names = subprocess.check_output(["ip", "netns", "list"], text=True).splitlines()
    return [name for name in names if name.startswith(f"trainhall-{pid}-")]


def _left(folder: Path) -> list[int]:
    """Processes that run because of the cluster, its guard among them."""
    found = []
    for process in psutil.process_iter():
        try:
            command, environ = process.cmdline(), process.environ()
        except psutil.Error:
            continue
        guards = str(folder) in command and "guard.py" in " ".join(command)
        if guards or environ.get("TRAINHALL_RUNTIME_DIR", "").startswith(f"{folder}/"):
            found.append(process.pid)
    return found
