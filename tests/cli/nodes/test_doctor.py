"""`trainhall doctor`: what it sees, and that each complaint says what to do."""

import json
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.forking import forks

from trainhall import __version__
from trainhall.cli.base.running import data_dir_of, server_options
from trainhall.cli.nodes import doctor
from trainhall.cli.nodes import doctor_checks as checks

GIB = 2**30
TORCH: dict[str, Any] = {
    "version": "2.12.1+cu128", "cuda": "12.8", "seconds": 2.0, "devices": 2, "nccl": "2.27.5",
}  # fmt: skip
DRIVER: dict[str, Any] = {"version": "570.1", "cuda": (12, 8), "gpus": ["H200", "H200"]}


class Coordinator(BaseHTTPRequestHandler):
    version = __version__
    date = ""
    instead: tuple[int, bytes] | None = None
    """A status and a body."""

    def do_GET(self) -> None:
        status, data = self.instead or (200, json.dumps({"version": self.version}).encode())
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def date_time_string(self, timestamp: float | None = None) -> str:
        return self.date or super().date_time_string(timestamp)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def coordinator() -> Iterator[tuple[str, type[Coordinator]]]:
    handler = type("Handler", (Coordinator,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", handler
    server.shutdown()
    thread.join()
    server.server_close()


def seen(check: checks.Check) -> tuple[str, str]:
    assert bool(check.remedy) == (check.status != "ok"), check
    return check.status, f"{check.detail} → {check.remedy}"


@pytest.mark.parametrize(
    ("found", "status", "words"),
    [
        (TORCH, "ok", "2.12.1+cu128 (CUDA 12.8), imported in 2.0 s"),
        ({}, "warn", "pip install 'trainhall[train]'"),
        ({"error": "ImportError: libfoo"}, "fail", "cannot be imported: ImportError: libfoo"),
        (TORCH | {"version": "2.10.0"}, "fail", "at least 2.11 and less than 2.14"),
        (TORCH | {"version": "2.14.0a0"}, "fail", "at least 2.11 and less than 2.14"),
        (TORCH | {"seconds": 40.0}, "warn", "on a local disk"),
    ],
)
def test_torch(found: dict[str, Any], status: str, words: str) -> None:
    finding = seen(checks.check_torch(found))
    assert finding[0] == status
    assert words in finding[1]


@pytest.mark.parametrize(
    ("torch", "driver", "status", "words"),
    [
        (TORCH, {}, "ok", "trains on its CPU"),
        (TORCH, DRIVER, "ok", "driver 570.1 (CUDA up to 12.8), PyTorch for CUDA 12.8, NCCL 2.27.5"),
        (TORCH | {"cuda": None}, DRIVER, "fail", "PyTorch is a CPU build"),
        (TORCH | {"cuda": "13.0"}, DRIVER, "fail", "update the driver, or install PyTorch for"),
        (TORCH | {"devices": 1}, DRIVER, "fail", "PyTorch sees 1 of 2 GPUs"),
        (TORCH | {"nccl": None}, DRIVER, "fail", "a build of PyTorch with NCCL"),
        (TORCH, DRIVER | {"gpus": []}, "warn", "`nvidia-smi`"),
        ({}, DRIVER, "ok", "driver 570.1"),
    ],
)
def test_gpus_and_their_driver(
    torch: dict[str, Any], driver: dict[str, Any], status: str, words: str
) -> None:
    found = [seen(check) for check in checks.check_gpus(torch, driver)]
    assert [(s, w) for s, w in found if s == status and words in w], found


def test_a_coordinator_that_answers(coordinator: tuple[str, type[Coordinator]]) -> None:
    url, handler = coordinator
    found = list(checks.check_coordinator(url, 8000, needed=True))
    assert [(c.name, c.status) for c in found] == [("coordinator", "ok"), ("clock", "ok")]
    handler.version = "9.9"
    handler.date = "Mon, 05 Jan 2026 09:30:00 GMT"
    found = list(checks.check_coordinator(url, 8000, needed=True))
    assert [(c.name, c.status) for c in found] == [("coordinator", "warn"), ("clock", "warn")]
    assert "9.9" in found[0].detail
    assert "NTP" in found[1].remedy


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (200, b"<!doctype html>", "{url} is not a Trainhall coordinator"),
        (200, b"[]", "{url} is not a Trainhall coordinator"),
        (200, b'{"status": "ok"}', "{url} is not a Trainhall coordinator"),
        (403, b'{"detail": "Host \'lab\' is not an address\\nof this coordinator"}',
         "{url}: Host 'lab' is not an address of this coordinator"),
        (502, b"", "{url}: the coordinator answered 502: Bad Gateway"),
    ],
)  # fmt: skip
def test_doctor_reports_unexpected_servers(
    coordinator: tuple[str, type[Coordinator]], status: int, body: bytes, message: str
) -> None:
    url, handler = coordinator
    handler.instead = status, body
    (check,) = checks.check_coordinator(url, 8000, needed=True)
    assert (check.status, check.detail) == ("fail", message.format(url=url))
    assert seen(check)[0] == "fail"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = list(checks.check_coordinator(url, port, needed=False))
    assert [(c.name, c.status) for c in found] == [("coordinator", "warn"), ("port", "ok")]


def test_doctor_reports_unschedulable_nodes(coordinator: tuple[str, type[Coordinator]]) -> None:
    url, handler = coordinator
    nodes = [
        {"name": "alpha", "state": "ready", "reason": "it reports"},
        {
            "name": "beta",
            "state": "drained",
            "reason": "quarantined (unhealthy): 9 attempts in a row\nfailed",
        },
        {"name": "gamma", "state": "lost", "reason": "nothing was heard of it for 90 s"},
    ]
    handler.instead = 200, json.dumps({"items": nodes, "next_cursor": None}).encode()
    drained, lost = checks.check_nodes(url)
    assert drained.detail == "beta is drained: quarantined (unhealthy): 9 attempts in a row failed"
    assert drained.status == lost.status == "warn"
    assert "trainhall nodes undrain beta" in drained.remedy
    assert lost.detail == "gamma is lost: nothing was heard of it for 90 s"
    for status, body in ((403, b"{}"), (200, b"[]"), (200, b"{}"), (200, b"<!doctype html>")):
        handler.instead = status, body
        assert list(checks.check_nodes(url)) == []


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://[", "nonsense"])
def test_doctor_needs_a_coordinator_only_if_named(url: str) -> None:
    (needed,) = checks.check_coordinator(url, 8000, needed=True)
    assert seen(needed)[0] == "fail"
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        found = list(checks.check_coordinator(url, holder.getsockname()[1], needed=False))
    assert [c.status for c in found] == ["warn", "warn"]
    assert "--port" in found[1].remedy


def test_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = tmp_path / "not" / "there"
    for free, status in ((100 * GIB, "ok"), (2 * GIB, "warn"), (1, "fail")):
        monkeypatch.setattr(shutil, "disk_usage", _usage(free))
        assert checks.check_data_dir(wanted).status == status
        assert list(tmp_path.iterdir()) == []
    shared = checks.check_shared_storage(tmp_path)
    assert shared.status == "ok"
    assert "renamed and read back" in shared.detail
    gone = checks.check_shared_storage(tmp_path / "gone")
    assert (gone.status, gone.detail) == ("fail", f"{tmp_path / 'gone'} does not exist")
    assert list(tmp_path.iterdir()) == []
    assert seen(checks.check_shared_storage(wanted))[0] == "fail"
    monkeypatch.setattr(os, "fsync", _no_space)
    assert "No space left" in checks.check_shared_storage(tmp_path).detail
    assert "No space left" in checks.check_data_dir(tmp_path).detail
    assert list(tmp_path.iterdir()) == []


def _usage(free: int) -> Any:
    return lambda _: type("Usage", (), {"free": free})


def _no_space(_handle: int) -> None:
    raise OSError(28, "No space left on device")


def test_limits() -> None:
    assert [checks.check_files(n).status for n in (256, 1024, 65536, -1)] == [
        "fail", "warn", "ok", "ok",
    ]  # fmt: skip
    assert "--shm-size" in seen(checks.check_shm(64 * 2**20))[1]
    assert checks.check_shm(GIB).status == "ok"


def test_names() -> None:
    assert "this host only" in seen(checks.check_name("localhost"))[1]
    assert "--address" in seen(checks.check_name("no-such-host.invalid"))[1]


@pytest.mark.parametrize("url", ["http://localhost:abc", "http://localhost:99999", "http://[::1"])
def test_doctor_reports_a_bad_url(url: str) -> None:
    assert data_dir_of(url) is None


def test_doctor_reports_folders_that_it_may_not_enter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    for check in ("exists", "is_dir"):
        monkeypatch.setattr(Path, check, denied)
    for found in (checks.check_data_dir(tmp_path), checks.check_shared_storage(tmp_path)):
        assert (found.status, found.detail) == ("fail", f"{tmp_path}: Permission denied")


def test_doctor_reads_options_from_command_line() -> None:
    split = ["python", "/venv/bin/trainhall", "server", "--port=9", "--data-dir", "/srv/hall"]
    assert server_options(split) == {"--port": "9", "--data-dir": "/srv/hall"}
    module = ["python", "-m", "trainhall.cli.main", "server"]
    assert server_options(module) == {}
    for other in (["trainhall", "agent"], ["vi", "server"], ["trainhall"], []):
        assert server_options(other) is None


def test_the_summary_counts_in_good_english() -> None:
    warning, fine = checks.Check("a", "warn", "told", "do"), checks.Check("b", "ok", "told")
    assert doctor._summary([fine]) == "All checks passed."
    assert doctor._summary([warning, fine]) == "0 failed, 1 warning, 1 ok."
    assert doctor._summary([warning, warning]) == "0 failed, 2 warnings, 0 ok."


def run_doctor(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TRAINHALL_")}
    return forks.run(
        forks.TRAINHALL, ["doctor", "--data-dir", str(folder), *arguments],
        env=clean | {"NO_COLOR": "1"},
    )  # fmt: skip


def test_doctor_exit_code_is_the_worst_result(
    coordinator: tuple[str, type[Coordinator]], tmp_path: Path
) -> None:
    url, _ = coordinator
    done = run_doctor(tmp_path, "--url", url, "-o", "json")
    found = {check["name"]: check for check in json.loads(done.stdout)}
    assert found["coordinator"]["status"] == "ok"
    assert {"python", "torch", "gpus", "clock", "data folder", "open files", "name"} <= set(found)
    failed = [check for check in found.values() if check["status"] == "fail"]
    assert done.returncode == (1 if failed else 0)
    done = run_doctor(tmp_path, "--url", "http://127.0.0.1:9", "--path", "relative")
    assert done.returncode == 1
    assert "FAIL  shared storage: relative is not an absolute path\n      → " in done.stdout
    assert "FAIL  coordinator: no answer at http://127.0.0.1:9" in done.stdout
    assert "\x1b" not in done.stdout


def test_users_of_jobs_are_named() -> None:
    assert "as other users" in checks.check_users(0, "root").detail
    other = checks.check_users(1000, "maria")
    assert (other.status, "jobs as maria" in other.detail) == ("ok", True)
