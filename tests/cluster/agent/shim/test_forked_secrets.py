"""Secrets of ranks that are forked: in the rank's own memory, and not in what others see."""

import subprocess
import sys

import pytest

TOKEN = "hf_canary_JX7qvT2mWz"
PROGRAM = """
import os, sys
from pathlib import Path
from trainhall.cluster.agent.shim.rank_process import fork_child

def work():
    print(os.environ["HF_TOKEN"] == sys.argv[1], os.environ["RANK"])
    print(sys.argv[1] in Path("/proc/self/environ").read_text())
    return 0

folder = Path(sys.argv[2])
files = (folder / "out", folder / "err")
env = {**os.environ, "HF_TOKEN": sys.argv[1], "RANK": "0"}
pid = fork_child("rank 0", files, env, folder, work)
assert os.waitpid(pid, 0)[1] == 0, files[1].read_text()
print(files[0].read_text().split(), "HF_TOKEN" in os.environ)
"""


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="ranks are forked on Linux alone")
def test_forked_rank_alone_has_its_secrets(tmp_path: object) -> None:
    command = [sys.executable, "-c", PROGRAM, TOKEN, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.strip() == "['True', '0', 'False'] False", done.stderr
