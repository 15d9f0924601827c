"""Copies of a process share its work. They are made of one that has no other threads."""

import json
import subprocess
import sys

import pytest

SCRIPT = """
import json, os
from trainhall.training.process.fork_map import in_copies

os.sched_getaffinity = lambda _: {0, 1, 2}  # on one core, too
here = os.getpid()

came, coming = os.pipe()
go, going = os.pipe()

def pid(index):
    os.write(coming, b"x")
    if index == 2:  # whoever takes the last one waits for the others, and lets them go
        for _ in range(3):
            os.read(came, 1)
        os.write(going, b"xx")
    else:
        os.read(go, 1)
    return os.getpid()

def killed(index):
    if index == 2 and os.getpid() != here:
        os.kill(os.getpid(), 9)
    return index, os.getpid() == here

def fails(index):
    if index == 1:
        raise ValueError("index 1")
    return index

squares = in_copies(lambda index: index**2, 30, 3)
pids = set(in_copies(pid, 3, 3))
alone = set(in_copies(lambda _: os.getpid(), 3, 1))
after = in_copies(killed, 5, 3)
try:
    in_copies(fails, 3, 2)
    error = None
except ValueError as raised:
    error = str(raised)
try:
    left = os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    left = None
print(json.dumps({
    "squares": squares, "pids": len(pids), "here": here in pids, "alone": alone == {here},
    "indices": [index for index, _ in after], "the dead one's": after[2][1], "error": error,
    "left": left, "none": in_copies(fails, 0, 3),
}))
"""


@pytest.mark.processes
def test_fork_map_does_each_item_once() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, check=True, text=True
    )
    found = json.loads(done.stdout)
    assert found == {
        "squares": [n**2 for n in range(30)],
        "pids": 3,
        "here": False,
        "alone": True,
        "indices": [0, 1, 2, 3, 4],
        "the dead one's": True,
        "error": "index 1",
        "left": None,
        "none": [],
    }
    assert "Traceback" not in done.stderr
