"""Files, sessions and packages of jobs that run as users of their own."""

import asyncio
from collections.abc import Iterator

import pytest
from support.forking import forks
from support.forking.run_as import needs_root, passable_folder
from support.forking.wall import Wall, running_wall
from support.nodes.forwarded_port import read_from
from support.storage.wheels import add_wheel, variables
from support.waiting import eventually

pytestmark = [pytest.mark.acceptance, pytest.mark.processes, needs_root]

LEAVES = """
import json, os, pathlib, sys, time
outputs = pathlib.Path(os.environ["TRAINHALL_OUTPUTS"])
found = {path.name: path.read_text() for path in outputs.iterdir()}
print(json.dumps(found), flush=True)
if not found:
    (outputs / "private").touch(0o600)
    (outputs / "private").write_text("its own")
    (outputs / "link").symlink_to(sys.argv[1] + "/secret")
    (outputs / "folder").symlink_to(sys.argv[1])
    os.mkfifo(outputs / "pipe")
    print("written", flush=True)
    time.sleep(1000)
"""
SERVES = """
import json, os, pathlib, socket, sys
import alpha
written = []
for path in (alpha.__file__, sys.prefix + "/pyvenv.cfg", sys.prefix + "/planted"):
    try:
        open(path, "a").close()
        written.append(path)
    except PermissionError:
        pass
server = socket.create_server(("127.0.0.1", 0))
port = server.getsockname()[1]
found = {"version": alpha.VERSION, "written": written, "port": port, "uid": os.getuid()}
print(json.dumps(found), flush=True)
while True:
    connection, (_, port) = server.accept()
    lines = map(str.split, pathlib.Path("/proc/net/tcp").read_text().splitlines())
    user = next(line[7] for line in lines if line[1].endswith(f":{port:04X}"))
    connection.sendall(user.encode())
    connection.close()
"""


@pytest.fixture(scope="module")
def wall() -> Iterator[Wall]:
    with passable_folder() as folder, pytest.MonkeyPatch.context() as patch:
        wheels = folder / "wheels"
        add_wheel(wheels, "alpha", "1.0")
        for name, value in variables(wheels, folder / "cache").items():
            patch.setenv(name, value)
        with running_wall() as found:
            yield found


def test_outputs_are_stored_with_the_rights_of_the_job(wall: Wall) -> None:
    secret = wall.folder / "of-root" / "secret"
    secret.parent.mkdir(mode=0o700)
    secret.write_text("of root's alone")
    secret.chmod(0o600)
    job = wall.submit("leaves", LEAVES, str(secret.parent))
    assert wall.printed(job) == {}
    eventually("its files", lambda: "written" in wall.lines(job))
    (outputs,) = (wall.data / "agent" / "attempts" / job).glob("*/outputs")
    (outputs / "hard").hardlink_to(secret)
    (outputs / "other").write_text("of root's alone")
    (outputs / "other").chmod(0o600)
    wall.pause(job)
    stored = wall.up.get(f"/outputs/jobs/{job}")["items"]
    assert [file["path"] for file in stored] == ["private"]
    contents = [path.read_text() for path in (wall.data / "outputs" / job).iterdir()]
    assert contents == ["its own"]
    events = wall.up.get(f"/training/jobs/{job}/events")["items"]
    skipped = {e["data"]["path"]: e["data"]["why"] for e in events if "why" in e["data"]}
    assert skipped == {"link": "link", "folder": "link", "hard": "unreadable",
                       "other": "unreadable"}  # fmt: skip
    wall.resume(job)
    assert wall.ended(job) == "completed"
    assert wall.printed(job, 1) == {"private": "its own"}
    assert (secret.read_text(), secret.stat().st_uid) == ("of root's alone", 0)


def test_sessions_and_packages_give_no_other_rights(wall: Wall) -> None:
    job = wall.submit("serves", SERVES, environment={"requirements": ["alpha"]})
    found = wall.printed(job)
    assert found["uid"] in wall.ids
    assert (found["version"], found["written"]) == ("1.0", [])
    assert asyncio.run(read_from(wall.url, job, found["port"])) == str(found["uid"]).encode()
    token = wall.data / "admin.token"
    text = f"id -u; id -G; grep NoNewPrivs /proc/self/status; cat {token}"
    command = ["exec", job, "--url", wall.url, "--", "sh", "-c", text]
    done = forks.run(forks.TRAINHALL, command)
    uid, groups, privileges = done.stdout.splitlines()
    assert int(uid) == found["uid"]
    assert {int(group) for group in groups.split()} <= set(wall.ids)
    assert privileges.split() == ["NoNewPrivs:", "1"]
    assert token.exists()
    assert "Permission denied" in done.stderr
