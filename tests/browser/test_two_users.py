"""Two users in two projects, each with a browser and a shell: neither sees or touches the other's
job, by whatever way they try."""

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from support.cluster.cluster import Cluster
from support.forking import forks
from support.pages import navigate
from support.waiting import SLOW, eventually

from trainhall.api import openapi_document as document

pytestmark = pytest.mark.browser

PASSWORD = "correct horse battery"
SCRIPT = """
import sys, time
import torch
import trainhall as th

mark = sys.argv[1]
th.init(total_steps=10**6)
print("this is", mark, flush=True)
th.report(**{mark: 0.5}, step=1)
th.checkpoint.save({"weights": torch.zeros(2)}, step=1)
while not th.should_stop():
    time.sleep(0.1)
"""
JOB = """
name: {mark}-job
code: .
script: {{path: train.py, args: [{mark}]}}
resources: {{workers: 1}}
tags: [{mark}-tag]
notes: notes of {mark}
"""
WAITING = """
name: {mark}-waiting
task: {{name: synthetic}}
resources: {{workers: 2}}
"""
FIRST_FRAME = """(path) => new Promise((done) => {
    const socket = new WebSocket(location.origin.replace("http", "ws") + path);
    socket.onclose = ({code}) => done(code);
    socket.onmessage = () => { done("a frame"); socket.close(); };
})"""
QUERIES = {"diff": "?other={job_id}"}
"""What routes need beside a path, by their last segment."""
NOT_THERE = re.compile(r"/environment/lock$|^/outputs/jobs/[^/]+/files/")
"""What the jobs have not: an installed environment, a stored output."""
COMMANDS = ("show", "logs", "ckpt ls", "pause", "cancel", "rm -y", "resize --workers 2")


@dataclass
class Someone:
    """A user, whose browser and shell are logged in, with a job that runs and one that waits.

    All that has a name has the mark in it: the user, the project, the jobs, a tag, the notes, the
    code, the output and a metric.
    """

    mark: str
    page: Page
    home: Path
    url: str
    known: dict[str, str] = field(default_factory=dict)
    """Values of the parameters of paths."""

    @property
    def user(self) -> str:
        return f"{self.mark}-user"

    @property
    def project(self) -> str:
        return f"{self.mark}-project"

    @property
    def job(self) -> str:
        return f"{self.mark}-job"

    @property
    def env(self) -> dict[str, str]:
        own = {"HOME": str(self.home), "XDG_CONFIG_HOME": str(self.home / "config")}
        return {**os.environ, **own, "TRAINHALL_URL": self.url, "COLUMNS": "300"}

    def shell(self, *command: str) -> CompletedProcess[str]:
        """The end of a command of this user, and what it wrote."""
        return forks.run(forks.TRAINHALL, command, env=self.env, cwd=self.home)

    def get(self, path: str, **params: Any) -> tuple[int, str]:
        """Status and text of an answer to this user's browser."""
        answer = self.page.request.get(f"/api/v1{path}", params=params)
        return answer.status, answer.body().decode(errors="replace")

    def read(self, path: str, **params: Any) -> Any:
        answer = self.page.request.get(f"/api/v1{path}", params=params)
        assert answer.ok, answer.text()
        return answer.json()


@pytest.fixture
def people(browser: Browser, cluster: Cluster, tmp_path: Path) -> Iterator[list[Someone]]:
    """Two users with a login in their browser and in their shell, and their jobs."""
    expect.set_options(timeout=SLOW)
    found = []
    for mark in ("zqapples", "zqbananas"):
        context = browser.new_context(base_url=cluster.url, reduced_motion="reduce")
        context.set_default_timeout(SLOW)
        home = tmp_path / mark
        home.mkdir()
        found.append(Someone(mark, context.new_page(), home, cluster.url))
    for one in found:
        cluster.post("/users", json={"name": one.user, "password": PASSWORD})
        cluster.post("/projects", json={"name": one.project})
        path = f"{cluster.url}/api/v1/projects/{one.project}/members/{one.user}"
        assert cluster.http.put(path, json={"role": "member"}).status_code == 204
        log_in(one)
        (one.home / "train.py").write_text(f"# {one.mark}\n{SCRIPT}")
        one.known["job_id"] = submit(one, JOB)
    for one in found:
        learn(one)
    # Last: what waits keeps devices for itself.
    for one in found:
        submit(one, WAITING)
        one.known["cursor"] = one.read("/training/jobs", limit=1)["next_cursor"]
    yield found
    for one in found:
        one.page.context.close()
    cluster.cancel_everything()


def log_in(one: Someone) -> None:
    """Log a browser in by a password, and by it the commands of a shell."""
    page = one.page
    page.goto("/login/device")
    page.get_by_label("Name").fill(one.user)
    page.get_by_role("textbox", name="Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in", exact=True).click()
    with contextlib.ExitStack() as files:
        login = forks.start(files, forks.TRAINHALL, ["login", "--code"], env=one.env, cwd=one.home)
        said = login.output[1].fileno()
        code = eventually(
            "the code", lambda: re.search(rb"[A-Z0-9]{4}-[A-Z0-9]{4}", os.pread(said, 4096, 0))
        )
        page.get_by_label("Code").fill(code[0].decode())
        page.get_by_role("button", name="Continue").click()
        page.get_by_role("button", name="Approve").click()
        expect(page.get_by_role("heading", name="Login approved")).to_be_visible()
        assert login.wait(90) == 0, login.communicate()
    assert one.user in one.shell("whoami").stdout


def submit(one: Someone, spec: str) -> str:
    """Submit a job by the shell; its id."""
    file = one.home / "job.yaml"
    file.write_text(spec.format(mark=one.mark))
    done = one.shell("submit", file.name)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def learn(one: Someone) -> None:
    """Wait for all that the job gives, and note what the other one will ask for."""
    job = f"/training/jobs/{one.known['job_id']}"
    checkpoints = f"/checkpoints/jobs/{one.known['job_id']}"
    eventually("the metric", lambda: one.mark in one.read(job)["metrics"])
    (saved,) = eventually("the checkpoint", lambda: one.read(checkpoints)["items"])
    eventually("the output", lambda: one.mark in one.shell("logs", one.job).stdout)
    files = f"/checkpoints/{saved['id']}/files"
    one.known |= {
        "checkpoint_id": saved["id"],
        "path": one.read(files)["items"][0]["path"],
        "sha256": one.read(job)["spec"]["code"],
    }


def routes(of: Someone) -> Iterator[tuple[str, bool]]:
    """Paths that can be read, with ids of someone; and whether they have any."""
    described: Any = document.document()
    for path, methods in described["paths"].items():
        names = re.findall(r"\{(\w+)\}", path)
        if "get" in methods and all(name in of.known for name in names) and "oidc" not in path:
            filled = path.removeprefix("/api/v1") + QUERIES.get(path.rpartition("/")[2], "")
            yield filled.format(**of.known), bool(names)


def test_neither_of_two_users_reaches_the_other(cluster: Cluster, people: list[Someone]) -> None:
    for one, other in (people, people[::-1]):
        check_routes(one, other)
        check_lists(one, other)
        check_pages(one, other)
        check_shell(one, other)
    for one, other in (people, people[::-1]):
        job = cluster.job(one.known["job_id"])
        assert (job["state"], job["tags"]) == ("running", [f"{one.mark}-tag"])
        assert other.mark not in cluster.story(one.known["job_id"])
        query = {"user": other.user, "object": f"/api/v1/training/jobs/{one.known['job_id']}"}
        assert cluster.get("/audit", params=query)["items"], "no refusal was recorded"


def check_routes(one: Someone, other: Someone) -> None:
    """Ask for everything, with ids of the other where there are any; and for the stream."""
    tried = list(routes(other))
    assert sum(has_ids for _, has_ids in tried) > 10
    for path, has_ids in tried:
        status, text = one.get(path)
        assert other.mark not in text, path
        assert not has_ids or status == 404, (path, status, text)
    stream = "/api/v1/metrics/stream/"
    assert one.page.evaluate(FIRST_FRAME, stream + other.known["job_id"]) == 4404
    assert one.page.evaluate(FIRST_FRAME, stream + one.known["job_id"]) == "a frame"
    for path, has_ids in routes(one):
        found = (200, 204, 404, 409) if NOT_THERE.search(path) else (200, 204, 409)
        assert not has_ids or one.get(path)[0] in found, path


def check_lists(one: Someone, other: Someone) -> None:
    """Look for the other's job by words and by a place in the other's list."""
    own, foreign = one.known["job_id"], other.known["job_id"]
    for params in (
        {},
        {"search": other.job},
        {"search": foreign},
        {"query": f"name:{other.mark}"},
        {"query": f"user:{other.user}"},
        {"query": f"project:{other.project}"},
        {"query": f"tag:{other.mark}-tag"},
        {"cursor": other.known["cursor"]},
    ):
        _, text = one.get("/training/jobs", **params)
        for asked in params.values():
            text = text.replace(asked, "")
        assert other.mark not in text, params
        assert foreign not in text, params
    # A metric of the other's is as unknown as one that nobody has.
    for key, value in (("query", "{}>0"), ("sort", "metrics.{}")):
        answers = [
            one.get("/training/jobs", **{key: value.format(name)})[1].replace(name, "")
            for name in (other.mark, "zqnothing")
        ]
        assert answers[0] == answers[1], key
    assert own in one.get("/training/jobs", search=one.job)[1]


def check_pages(one: Someone, other: Someone) -> None:
    """Open what shows jobs, and the other's job by its address."""
    page, foreign = one.page, other.known["job_id"]
    for address, heading in (
        ("/jobs", "Jobs"),
        (f"/jobs?search={foreign}", "Jobs"),
        (f"/jobs?query=id:{foreign}", "Jobs"),
        (f"/jobs/{foreign}", "Job not found"),
        ("/nodes", "Nodes"),
        ("/queue", "Queue"),
    ):
        navigate(page, address)
        expect(page.get_by_role("heading", name=heading, exact=True).first).to_be_visible()
        if address in ("/jobs", "/queue"):
            expect(page.get_by_role("link", name=one.mark).first).to_be_visible()
        if address in ("/nodes", "/queue"):
            expect(page.get_by_text("a job of another project").first).to_be_visible()
        assert other.mark not in page.content(), address
    navigate(page, f"/jobs/{one.known['job_id']}?tab=logs")
    expect(page.get_by_text(f"this is {one.mark}")).to_be_visible()


def check_shell(one: Someone, other: Someone) -> None:
    """Try commands on the other's job by its id and its name, its checkpoint and its code."""
    foreign, checkpoint = other.known["job_id"], other.known["checkpoint_id"]
    for command in COMMANDS:
        assert_unknown(one.shell(*command.split(), foreign), foreign, other)
    assert_unknown(one.shell("show", other.job), other.job, other)
    for command in ("show", "restore", "delete"):
        assert_unknown(one.shell("ckpt", command, checkpoint), checkpoint, other)
    (one.home / "job.yaml").write_text(JOB.format(mark=one.mark))
    done = one.shell("submit", "job.yaml", "--set", f"code={other.known['sha256']}")
    assert done.returncode != 0, done.stdout
    assert other.mark not in done.stdout + done.stderr
    for command in ("ls", "ls --queue", "nodes show here", "quotas", "ledger"):
        done = one.shell(*command.split())
        assert done.returncode == 0, done.stderr
        assert other.mark not in done.stdout + done.stderr, command


def assert_unknown(done: CompletedProcess[str], asked: str, other: Someone) -> None:
    text = done.stdout + done.stderr
    assert (done.returncode in (1, 102), "there is no" in text) == (True, True), text
    assert other.mark not in text.replace(asked, ""), text
