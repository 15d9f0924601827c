"""Coordinators as processes that ask for a credential: who of the same host gets in."""

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from support.forking import forks
from support.ports import reserve
from support.waiting import PATIENCE, eventually

from trainhall.api.host import credentials
from trainhall.api.host.credentials import admin_token

OTHER_USER = 65534
SUBMIT = """
import json, sys, urllib.request
url, token = sys.argv[1:]
spec = {"name": "stolen", "script": {"path": "/bin/id"}}
headers = {"Content-Type": "application/json"} | ({"Authorization": token} if token else {})
request = urllib.request.Request(url + "/api/v1/training/jobs", json.dumps(spec).encode(), headers)
try:
    print(urllib.request.urlopen(request, timeout=20).status)
except urllib.error.HTTPError as error:
    print(error.code)
for path in sys.stdin.read().split():
    try:
        print(len(open(path).read()))
    except PermissionError:
        print("denied")
"""


def clean_environment(folder: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TRAINHALL_", "DATABASE"))}
    return kept | {"XDG_CONFIG_HOME": str(folder / "config"), "TRAINHALL_AUTH": "token"}


@contextlib.contextmanager
def running(
    folder: Path, command: str | list[str], *arguments: str, cwd: Path | None = None
) -> Iterator[Path]:
    """The file with the output of a program, which is ended in order.

    Args:
        command: is executed, or forked where it names a `package.module:function`.
    """
    output = folder / "output"
    env = clean_environment(folder) | {"TRAINHALL_DATA_DIR": str(folder / "data")}
    process: forks.Fork | subprocess.Popen[bytes]
    with output.open("wb") as log, open(os.devnull, "rb") as nothing:
        if isinstance(command, str):
            process = forks.fork(command, arguments, files=[nothing, log, log], env=env, cwd=cwd)
        else:
            process = subprocess.Popen(
                [*command, *arguments], stdin=nothing, stdout=log, stderr=log, env=env, cwd=cwd
            )
    try:
        yield output
    finally:
        process.terminate()
        process.wait(PATIENCE)


@contextlib.contextmanager
def listening_as(user: int) -> Iterator[str]:
    """The URL of a program of this user that listens on loopback."""
    program = "import socket; s = socket.create_server(('127.0.0.1', 0)); "
    program += "print(s.getsockname()[1], flush=True); input()"
    with subprocess.Popen(
        ["/usr/bin/env", "python3", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, user=user, cwd="/",
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.stdin.write("\n")


def link_in(output: Path) -> str:
    def find() -> str | None:
        found = re.search(r"(http://\S+)/login#code=\S+", output.read_text())
        return found and found[0]

    return str(eventually("the login link", find))


def stored(folder: Path) -> dict[str, str]:
    path = folder / "config" / "trainhall" / "credentials"
    return {url: entry["token"] for url, entry in json.loads(path.read_text()).items()}


def answers_to(link: str) -> int:
    """The status of who am I, in a browser that followed the link."""
    url, _, code = link.partition("/login#code=")
    with httpx.Client(base_url=url) as browser:
        assert browser.post("/api/v1/auth/link", json={"code": code}).status_code == 204
        return browser.get("/api/v1/auth/me").status_code


@pytest.mark.processes
@pytest.mark.skipif(os.getuid() != 0, reason="other users are tried by root alone")
def test_other_user_of_the_host_submits_nothing(tmp_path: Path) -> None:
    """As a job does that runs as another user, too."""
    with running(tmp_path, forks.TRAINHALL, "server", "--port", "0") as output:
        url = link_in(output).partition("/login")[0]
        secrets = [
            tmp_path / "data" / "admin.token", tmp_path / "config" / "trainhall" / "credentials",
            tmp_path / "data" / "trainhall.db",
        ]  # fmt: skip
        # Their folders hide nothing: the files themselves are private.
        for folder in (tmp_path, *tmp_path.parents[:-2], *(path.parent for path in secrets)):
            folder.chmod(folder.stat().st_mode | 0o711)

        def submit(user: int, token: str) -> list[str]:
            done = subprocess.run(
                ["/usr/bin/env", "python3", "-c", SUBMIT, url, token],
                input="\n".join(map(str, secrets)),
                user=user, extra_groups=[], capture_output=True, text=True, check=True, cwd="/",
            )  # fmt: skip
            return done.stdout.split()

        assert submit(OTHER_USER, "") == ["401", "denied", "denied", "denied"]
        assert submit(OTHER_USER, "Bearer th_guessed")[0] == "401"
        token = admin_token(tmp_path / "data")
        assert (
            submit(OTHER_USER, f"Bearer {token}")[0] == "201"
        )  # it is the token alone that counts


@pytest.mark.processes
@pytest.mark.skipif(os.getuid() != 0, reason="other users are tried by root alone")
def test_other_user_at_the_port_gets_no_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a coordinator that was killed and left its token behind."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with listening_as(OTHER_USER) as url:
        credentials.store_token(url, "th_own", own=True)
        assert credentials.stored_token(url) is None
        credentials.store_token(url, "th_login")  # of a coordinator that another user runs
        assert credentials.stored_token(url) == "th_login"
    with listening_as(os.getuid()) as url:
        credentials.store_token(url, "th_own", own=True)
        assert credentials.stored_token(url) == "th_own"


@pytest.mark.processes
def test_server_admits_its_own_user_until_it_ends(tmp_path: Path) -> None:
    with running(tmp_path, forks.TRAINHALL, "server", "--port", "0") as output:
        link = link_in(output)
        url = link.partition("/login")[0]
        assert stored(tmp_path) == {url: admin_token(tmp_path / "data")}
        asked = ["whoami", "-o", "json", "--url", url]
        whoami = forks.run(forks.TRAINHALL, asked, env=clean_environment(tmp_path))
        assert json.loads(whoami.stdout)["admin"] is True
        assert answers_to(link) == 200
    assert stored(tmp_path) == {}
    assert admin_token(tmp_path / "data") is not None


@pytest.mark.processes
def test_uvicorn_admits_its_own_user(tmp_path: Path) -> None:
    owner: set[int] = set()
    port = reserve(owner)
    sources = Path(__file__).parents[2]
    uvicorn = [sys.executable, "-m", "uvicorn"]
    with running(tmp_path, uvicorn, "api.main:app", "--port", str(port), cwd=sources) as output:
        link = link_in(output)
        url = f"http://127.0.0.1:{port}"
        assert link.startswith(f"{url}/login#")
        assert list(stored(tmp_path)) == [url]

        def listens() -> bool:
            with contextlib.suppress(httpx.TransportError):
                return httpx.get(f"{url}/healthz").status_code == 200
            return False

        eventually("uvicorn", listens)
        assert answers_to(link) == 200
    assert stored(tmp_path) == {}


@pytest.mark.processes
def test_up_prints_a_link_outside_its_logs(tmp_path: Path) -> None:
    with running(tmp_path, forks.COMMAND, "up", "--port", "0", "--slots", "1") as output:
        link = link_in(output)
        assert answers_to(link) == 200
        log = tmp_path / "data" / "logs" / "coordinator.log"
        assert "/login#code=" not in log.read_text()
        url = link.partition("/login")[0]
        headers = {"Authorization": f"Bearer {admin_token(tmp_path / 'data')}"}

        def ready() -> bool:
            nodes = httpx.get(f"{url}/api/v1/cluster/nodes", headers=headers).json()["items"]
            return [node["state"] for node in nodes] == ["ready"]

        eventually("the node", ready)
        agent = (tmp_path / "data" / "logs" / "agent.log").read_text()
        assert "th_" not in agent
