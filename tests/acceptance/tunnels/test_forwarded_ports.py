"""A port of a running job in a browser: answers come as they are written, through every process."""

from pathlib import Path

import httpx
import pytest
from support.cluster.agent_process import script
from support.cluster.cluster import running_cluster
from support.waiting import eventually

pytestmark = pytest.mark.acceptance

SERVER = """
import http.server, threading
released = threading.Event()
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"5\\r\\nfirst\\r\\n")
        released.wait(60)
        self.wfile.write(b"6\\r\\nsecond\\r\\n0\\r\\n\\r\\n")
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        released.set()
        self.send_response(201)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[::-1])
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print("port", server.server_port, flush=True)
server.serve_forever()
"""


def test_pages_of_jobs_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINHALL_FORWARD_DOMAIN", "localhost")
    with running_cluster(tmp_path / "cluster", slots=1) as cluster:
        job = cluster.submit({"name": "server", **script(tmp_path, SERVER)})
        cluster.wait_for(job, "running")
        port = eventually("a port", lambda: cluster.log_text(job, 0).partition("port ")[2]).strip()
        link = httpx.URL(cluster.post(f"/training/jobs/{job}/ports/{port}/link")["url"])
        host = link.netloc.decode()
        assert host == f"{job}-{port}.localhost:{link.port}"
        with httpx.Client(base_url=cluster.url, headers={"Host": host}, timeout=60) as page:
            assert page.get(link.raw_path.decode()).status_code == 303
            body = bytes(range(256)) * 4096
            with page.stream("GET", "/") as answer:
                parts = answer.iter_raw()
                assert next(parts) == b"first"
                reply = page.post("/", content=body)
                assert (reply.status_code, reply.content) == (201, body[::-1])
                assert b"".join(parts) == b"second"
            cluster.request("DELETE", f"/training/jobs/{job}")
            cluster.wait_for(job, "cancelled")
            assert page.get("/").status_code == 409
