"""Data sets of jobs, from the spec to what their ranks read."""

import hashlib
import http.server
import io
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cluster.cluster import running_cluster

pytestmark = pytest.mark.acceptance

SCRIPT = """
import os, sys
import trainhall as th
corpus, local = th.data("corpus"), th.data("local-files")
th.report(value=float((corpus / "a" / "one.txt").read_text()), step=1)
print("local", (local / "two.txt").read_text(), sys.argv[1], os.environ["TRAINHALL_DATA_CORPUS"])
try:
    (corpus / "a" / "three.txt").write_text("x")
except PermissionError:
    print("read-only")
"""


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Serve an archive; gives its URL and hash."""
    folder = tmp_path / "served"
    folder.mkdir()
    with tarfile.open(folder / "corpus.tar.gz", "w:gz") as tar:
        member = tarfile.TarInfo("a/one.txt")
        member.size = 1
        tar.addfile(member, io.BytesIO(b"7"))

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: object) -> None:
            super().__init__(*args, directory=str(folder))  # type: ignore[arg-type]

        def log_message(self, *_: object) -> None:
            return

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/corpus.tar.gz"
        yield url, hashlib.sha256((folder / "corpus.tar.gz").read_bytes()).hexdigest()
        server.shutdown()


def test_job_reads_the_data_sets_that_it_names(tmp_path: Path, archive: tuple[str, str]) -> None:
    url, sha256 = archive
    (tmp_path / "train.py").write_text(SCRIPT)
    local = tmp_path / "local"
    local.mkdir()
    (local / "two.txt").write_text("two")
    corpus = {"name": "corpus", "url": url, "sha256": sha256, "unpack": True}
    spec = {
        "name": "reader",
        "script": {"path": str(tmp_path / "train.py"), "args": ["${data.local-files}/x"]},
        "data": [corpus, {"name": "local-files", "path": str(local)}],
    }
    with running_cluster(tmp_path / "cluster") as cluster:
        job = cluster.submit(spec)
        done = cluster.wait_for(job, "completed")
        assert (done["step"], done["metrics"]["value"], done["attempt"]) == (1, 7.0, 1)
        log = cluster.log_text(job, 0)
        assert f"local two {local}/x {tmp_path}/cluster" in log
        found = cluster.get(f"/training/jobs/{job}/data")["items"]
        assert [(each["name"], each["kind"], each["files"]) for each in found] == [
            ("corpus", "contents", 1), ("local-files", "contents", 1),
        ]  # fmt: skip
        assert found[0]["sha256"] == sha256
        missing = {**spec, "data": [corpus, {"name": "local-files", "path": "/no/such"}]}
        failed = cluster.wait_for(cluster.submit(missing), "failed")
        assert "data set local-files: /no/such cannot be read: No such file" in failed["reason"]
        assert (failed["attempt"], failed["reason_code"]) == (1, "failed")
