"""Attacks of jobs, as users of their own, on a whole cluster: coordinator, agent, other jobs."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from support.forking.run_as import needs_root
from support.forking.wall import Wall, running_wall
from support.waiting import eventually

from trainhall.api.host.credentials import admin_token

pytestmark = [pytest.mark.acceptance, pytest.mark.processes, needs_root]

WAITS = """
import json, os, pathlib, sys, time
print(json.dumps({"uid": os.getuid(), "pid": os.getpid(),
      "shim": os.getppid(), "folder": os.environ["TRAINHALL_ATTEMPT_FOLDER"]}), flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
"""
ATTACKS = """
import json, os, pathlib, signal, socket, sys, urllib.error, urllib.request

url, victim, *given = sys.argv[1:]
victim, (data, config), pids = json.loads(victim), given[:2], list(map(int, given[2:]))
found = {}

def attack(name, work):
    try:
        found[name] = repr(work())[:200]
    except OSError:
        pass

def read(path):
    return pathlib.Path(path).read_bytes()[:100]

for name in ("admin.token", "trainhall.db", "trainhall.db-wal", "agent/agent.json", "up.lock",
             "logs/coordinator.log", "logs/agent.log"):
    attack(f"read {name}", lambda: read(f"{data}/{name}"))
    attack(f"replace {name}", lambda: os.replace(f"{data}/{name}", f"{data}/{name}.old"))
for name in ("logs", "code", "checkpoints", "agent", "agent/attempts", "agent/code",
             "agent/outputs"):
    attack(f"list {name}", lambda: os.listdir(f"{data}/{name}"))
    attack(f"write to {name}", lambda: pathlib.Path(f"{data}/{name}/planted").write_text("x"))
attack("read the login of commands", lambda: read(f"{config}/trainhall/credentials"))
for pid in (*pids, victim["pid"], victim["shim"]):
    for name in ("environ", "mem", "maps"):
        attack(f"read {name} of {pid}", lambda: open(f"/proc/{pid}/{name}", "rb").read(1))
    attack(f"list the files of {pid}", lambda: os.listdir(f"/proc/{pid}/fd"))
    for number in (0, signal.SIGSTOP, signal.SIGKILL):
        attack(f"signal {number} to {pid}", lambda: os.kill(pid, number))
attack("list another's folder", lambda: os.listdir(victim["folder"]))
for name in ("launch.json", "api.json", "status.json", "ranks/0/stdout.log"):
    attack(f"read another's {name}", lambda: read(f"{victim['folder']}/{name}"))
attack("write to another's log", lambda: open(f"{victim['folder']}/ranks/0/stdout.log", "a"))

status = {}
for path, method in (("training/jobs", "GET"), ("training/jobs", "POST"), ("audit", "GET"),
                     ("cluster/nodes", "POST"), ("users", "GET"), ("auth/codes", "POST"),
                     ("agent/code/" + 64 * "0", "GET")):
    body = b"{}" if method == "POST" else None
    request = urllib.request.Request(f"{url}/api/v1/{path}", body, method=method,
        headers={"Content-Type": "application/json"})
    try:
        status[f"{method} {path}"] = urllib.request.urlopen(request, timeout=60).status
    except urllib.error.HTTPError as error:
        status[f"{method} {path}"] = error.code
secrets = [name for name in os.environ if "TOKEN" in name or name in ("DATABASE_URL", "CANARY")]
print(json.dumps({"found": found, "status": status, "secrets": secrets}), flush=True)
"""
LEAVES = """
import os, pathlib, shutil, signal, sys, time
folder = pathlib.Path(os.environ["TRAINHALL_ATTEMPT_FOLDER"])
for name in ("status.json", "launch.json", "control.bin", "ranks/0/events.jsonl",
             "ranks/0/metrics.bin"):
    (folder / name).unlink(missing_ok=True)
    if sys.argv[1] == "pipe":
        os.mkfifo(folder / name)
    elif sys.argv[1] == "directory":
        (folder / name).mkdir()
    else:
        (folder / name).write_text("[" * 100_000)
ended, held = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve(sys.executable, [sys.executable, "-S", "-c", "import time; time.sleep(600)"], {})
    os._exit(0)
os.close(held)
os.read(ended, 1)  # until the detached child runs its own program, which closes its end
os.kill(os.getppid(), signal.SIGKILL)
time.sleep(600)
"""
USES_THE_API = """
import json, os, sys, time
import trainhall as th

with th.Client() as client:
    me = client.request("GET", "/auth/me")
    job = client.submit({"name": "child", "script": {"path": sys.argv[1], "args": [sys.argv[2]]}})
    refused = []
    for path, body in (("/auth/tokens", {"name": "more"}), ("/auth/codes", {}),
                       ("/users", {"name": "eve"}), ("/cluster/nodes", {"name": "more"})):
        try:
            client.request("POST", path, json=body)
        except Exception as error:
            refused.append(type(error).__name__)
found = {"me": me, "job": job["id"], "owner": job["user"], "refused": refused}
print(json.dumps(found), flush=True)
# For the test alone, which looks for it in all that can be read.
with open(os.open(sys.argv[3], os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
    file.write(os.environ["TRAINHALL_TOKEN"])
while not os.path.exists(sys.argv[2]):
    time.sleep(0.02)
"""


@pytest.fixture(scope="module")
def wall() -> Iterator[Wall]:
    with running_wall() as found:
        yield found


def test_job_reaches_nothing_of_the_cluster(wall: Wall) -> None:
    gate = wall.folder / "reached"
    victim = wall.submit("victim", WAITS, str(gate), api_token="member")
    seen = wall.printed(victim)
    assert seen["uid"] in wall.ids
    pids = [wall.up.process.pid, *(wall.up.child(name).pid for name in ("coordinator", "agent"))]
    config = os.environ.get("XDG_CONFIG_HOME", str(Path.home() / ".config"))
    hostile = wall.submit(
        "hostile", ATTACKS, wall.url, json.dumps(seen), str(wall.data), config, *map(str, pids)
    )
    tried = wall.printed(hostile)
    assert tried["found"] == {}
    assert set(tried["status"].values()) == {401}
    # Its own alone: what its tracking client sends to the server beside its ranks.
    assert tried["secrets"] == ["MLFLOW_TRACKING_TOKEN"]
    assert wall.ended(hostile) == "completed"
    # What it was refused is there.
    assert admin_token(wall.data)
    for name in ("trainhall.db", "agent/agent.json", "logs/agent.log"):
        assert (wall.data / name).exists()
    gate.touch()
    assert wall.ended(victim) == "completed"


@pytest.mark.parametrize("attack", ["garbage", "pipe", "directory"])
def test_job_that_kills_its_shim_harms_no_other(wall: Wall, attack: str) -> None:
    gate = wall.folder / f"beside-{attack}"
    beside = wall.submit("beside", WAITS, str(gate))
    pid = wall.printed(beside)["pid"]
    agent = wall.up.child("agent").pid
    hostile = wall.submit("hostile", LEAVES, attack)
    assert wall.ended(hostile) == "failed"
    shim = psutil.Process(pid).parent()
    assert shim is not None
    eventually("it to leave nothing", lambda: wall.processes() == {pid, shim.pid})
    assert wall.up.child("agent").pid == agent
    gate.touch()
    assert wall.ended(beside) == "completed"


def test_job_uses_the_api_with_its_own_token(wall: Wall) -> None:
    gate, place = wall.folder / "used", wall.folder / "tokens"
    place.mkdir()
    place.chmod(0o1777)
    child = wall.folder / "child.py"
    child.write_text(WAITS)
    job = wall.submit(
        "parent", USES_THE_API, str(child), str(gate), str(place / "token"), api_token="member"
    )
    used = wall.printed(job)
    me = wall.up.get("/auth/me")["user"]
    assert (used["me"]["user"], used["me"]["admin"]) == (me, False)
    assert [project["role"] for project in used["me"]["projects"]] == ["member"]
    assert used["owner"] == me
    assert used["refused"] == ["NotAllowedError"] * 4
    token = eventually("the token", (place / "token").read_text)
    bearer = {"Authorization": f"Bearer {token}"}
    path = f"{wall.url}/api/v1/training/jobs/{job}"
    assert httpx.get(path, headers=bearer).status_code == 200
    for each in (path, f"{path}/attempts", f"{path}/events", f"{path}/logs"):
        assert token not in httpx.get(each, headers=wall.up.credential).text
    for log in ("coordinator", "agent"):
        assert token not in (wall.data / "logs" / f"{log}.log").read_text()
    (launch,) = (wall.data / "agent" / "attempts" / job).glob("*/launch.json")
    assert token not in launch.read_text()
    rows = wall.up.get("/audit", action="job")["items"]
    submitted = next(row for row in rows if row["object"] == used["job"])
    assert submitted["credential"] == f"attempt 1 of job {job}"
    gate.touch()
    assert wall.ended(job) == "completed"
    assert httpx.get(path, headers=bearer).status_code == 401
    assert wall.ended(used["job"]) == "completed"
