"""Jobs with packages of their own, from their submission to what they import."""

from pathlib import Path

import pytest
from support.cluster.cluster import running_cluster
from support.storage.wheels import wheels as wheels

pytestmark = pytest.mark.acceptance

SCRIPT = """
import os, sys
import alpha, beta, trainhall
trainhall.report(version=float(alpha.VERSION), step=1)
print("in", sys.prefix, os.environ["HELLO"])
"""


def test_job_imports_the_packages_that_it_asks_for(tmp_path: Path, wheels: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    spec = {
        "name": "packed",
        "script": {"path": str(tmp_path / "train.py")},
        "environment": {"requirements": ["alpha"], "variables": {"HELLO": "world"}},
    }
    with running_cluster(tmp_path / "cluster") as cluster:
        job = cluster.submit(spec)
        done = cluster.wait_for(job, "completed")
        assert (done["step"], done["attempt"]) == (1, 1)
        log = cluster.log_text(job, 0)
        assert "+ alpha==1.0" in log
        assert f"in {tmp_path}/cluster" in log
        assert "world" in log
        found = cluster.get(f"/training/jobs/{job}/environment")
        assert (found["packages"], found["attempt"]) == (2, 1)
        nothing = {**spec, "environment": {"requirements": ["nosuch"]}}
        failed = cluster.wait_for(cluster.submit(nothing), "failed")
        assert "nosuch was not found in the package registry" in failed["reason"]
        assert (failed["attempt"], failed["reason_code"]) == (1, "failed")
