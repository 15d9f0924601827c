"""Send random requests as every role, and look for failures and for what other projects own.

python scripts/fuzz_roles.py                        an hour
python scripts/fuzz_roles.py --minutes 5 --seed 7

Two projects have a job and all that hangs on it; whatever users named has a mark of its project.
No answer may be a 5xx, and none to somebody without a role in a project may have its mark, or an
id of it that the request did not name.
"""

import argparse
import asyncio
import itertools
import json
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
import requests
import schemathesis
import structlog
from hypothesis import HealthCheck, Phase
from schemathesis.core.result import Ok
from schemathesis.pytest.lazy import get_all_tests
from steps import ROOT, positive

sys.path.insert(0, str(ROOT / "tests"))

from support.access.world import FOREIGN, OWN, ROLES, Things, World
from support.cluster.agent_process import until
from support.cluster.web import Served

from trainhall.api import openapi_document as document
from trainhall.api.app import create_app
from trainhall.api.host.listening import listen
from trainhall.api.server import server_config
from trainhall.api.settings import Settings
from trainhall.cluster.coordinator import Coordinator

ANONYMOUS = "anonymous"
CALLERS = (*ROLES, "boss", "scraper", ANONYMOUS)
ANSWER_SECONDS = 60.0
"""Time for an answer: the application shares this process with Hypothesis, whose garbage takes
seconds to collect on a loaded host."""
EXAMPLES = 12
REAL_IDS = 0.7
"""Share of requests whose path has ids of the two projects."""
NEW_THINGS = 40
"""Operations after which the projects get new things, since some of the old ones were deleted."""
SHOWN = 20


@dataclass
class Found:
    """Count of answers, and what is wrong with some."""

    statuses: Counter[int] = field(default_factory=Counter)
    by_caller: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def add(self, caller: str, answer: schemathesis.Response, hidden: set[str]) -> None:
        self.statuses[answer.status_code] += 1
        self.by_caller[caller] += 1
        request = answer.request
        asked = f"{request.method} {request.url}"
        if answer.status_code >= 500:
            self._note(f"{caller}: {asked}: {answer.status_code} {answer.text[:300]}")
        said = f"{asked} {_text(request.body)} {dict(request.headers)}"
        text = f"{answer.text} {dict(answer.headers)}"
        leaked = sorted(word for word in hidden if word in text and word not in said)
        if leaked:
            start = max(0, text.index(leaked[0]) - 150)
            self._note(f"{caller}: {asked}: shows {', '.join(leaked)}: {text[start : start + 300]}")

    def _note(self, wrong: str) -> None:
        if len(self.wrong) < SHOWN:
            print(wrong, flush=True)
        self.wrong.append(wrong)


class Projects:
    """The two projects of an application that this loop serves, and new things in them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, coordinator: Coordinator) -> None:
        self._loop = loop
        self.world: World = self._run(World.make(coordinator))
        # Requests take the numbers behind the highest one.
        self.world._numbers = itertools.count(10**9, 10**6)
        self.things: list[Things] = []

    def _run(self, work: Any) -> Any:
        future: Future[Any] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(120)

    def add(self) -> None:
        """Add things of two users, with an experiment."""
        self.things = [
            self._run(self.world.add(OWN, "member", experiment=True)),
            self._run(self.world.add(FOREIGN, "stranger", experiment=True)),
        ]

    def hidden(self, caller: str) -> set[str]:
        """Marks and ids that a caller may not learn."""
        marks = {OWN, FOREIGN}
        if caller == "boss":
            return set()
        if caller in ROLES:
            marks.remove(ROLES[caller][0])
        return marks.union(*(self.world.ids[mark] for mark in marks))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=positive, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    found = asyncio.run(_fuzz_served(options.minutes * 60.0, random.Random(options.seed)))
    print(_summary(found))
    print(json.dumps(dict(found.by_caller)))
    return 1 if found.wrong else 0


async def _fuzz_served(seconds: float, chance: random.Random) -> Found:
    with tempfile.TemporaryDirectory(prefix="trainhall-fuzz-") as folder:
        app = create_app(Settings(data_dir=Path(folder), auth="token"))
        listener = listen("127.0.0.1", 0)
        server = Served(server_config(app))
        serving = asyncio.create_task(server.serve([listener]))
        await until("the server to listen", lambda: server.started)
        loop, coordinator = asyncio.get_running_loop(), app.state.coordinator
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            return await asyncio.to_thread(_fuzz, loop, coordinator, url, seconds, chance)
        finally:
            server.should_exit = True
            await serving


def _fuzz(
    loop: asyncio.AbstractEventLoop,
    coordinator: Coordinator,
    url: str,
    seconds: float,
    chance: random.Random,
) -> Found:
    described: Any = document.document()
    paths = described["paths"].items()
    operations = [f"{method.upper()} {path}" for path, methods in paths for method in methods]
    schemas = [_schema(described, mode) for mode in ("positive", "positive", "all")]
    projects, found, rounds = Projects(loop, coordinator), Found(), 0
    ends = time.monotonic() + seconds
    with requests.Session() as session:
        session.trust_env = False  # it would read the environment's proxies for each request
        while time.monotonic() < ends:
            if rounds % NEW_THINGS == 0:
                projects.add()
            rounds += 1
            caller, name = chance.choice(CALLERS), chance.choice(operations)
            schema = chance.choice(schemas).include(name=name)
            _ask(schema, url, session, projects, caller, chance, found)
            if rounds % 200 == 0:
                print(_summary(found), flush=True)
    return found


def _schema(described: Any, mode: str) -> Any:
    """Return the document as a source of requests.

    Args:
        mode: positive: those that keep to it; all: others, too.
    """
    config = {"phases": {"coverage": {"enabled": False}}, "generation": {"mode": mode}}
    return schemathesis.openapi.from_dict(described, config=schemathesis.Config.from_dict(config))


def _ask(
    schema: Any,
    url: str,
    session: requests.Session,
    projects: Projects,
    caller: str,
    chance: random.Random,
    found: Found,
) -> None:
    """Send random requests of one operation, whose answers are checked."""
    hidden = projects.hidden(caller)

    def check(case: schemathesis.Case[Any]) -> None:
        # A caller's own things are named by nobody else: they would hold a mark that is hidden.
        is_own = "/users/me/" in case.path
        if case.path_parameters and not is_own and chance.random() < REAL_IDS:
            real = chance.choice(projects.things).params
            known = {key: real[key] for key in case.path_parameters if key in real}
            case.path_parameters.update(known)
        headers = {}
        if caller != ANONYMOUS:
            headers["Authorization"] = f"Bearer {projects.world.tokens[caller]}"
        answer = case.call(base_url=url, session=session, headers=headers, timeout=ANSWER_SECONDS)
        found.add(caller, answer, hidden)

    settings = hypothesis.settings(
        max_examples=EXAMPLES, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    [made] = get_all_tests(schema=schema, test_func=check, settings=settings, given_kwargs={})
    assert isinstance(made, Ok), made
    _, test = made.ok()
    hypothesis.seed(chance.randrange(2**32))(test)()


def _summary(found: Found) -> str:
    classes = Counter(f"{status // 100}xx" for status in found.statuses.elements())
    shown = ", ".join(f"{count:,} {name}" for name, count in sorted(classes.items()))
    return f"{found.statuses.total():,} requests: {shown}; {len(found.wrong)} wrong"


def _text(body: object) -> str:
    if isinstance(body, bytes):
        return body.decode(errors="replace")
    return body if isinstance(body, str) else ""


if __name__ == "__main__":
    sys.exit(main())
