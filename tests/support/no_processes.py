"""`pytest --no-processes`: only tests that start no process, for the inner loop (`make check`).

A test that starts one says so by its marks or its fixtures; one that does not, fails here. Property
tests draw a third of their examples.
"""

import sys
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import settings
from support import examples

_MARKS = ("acceptance", "browser", "processes", "gpu")
_FIXTURES = {"postgres_server", "ranks", "run", "run_warm", "coordinator", "cluster", "cli"}
_EVENTS = {"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty"}
_running: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-processes", action="store_true", help=str(__doc__).splitlines()[0])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("no_processes"):
        left_out = [item for item in items if _starts_processes(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not _starts_processes(item)]


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("no_processes"):
        sys.addaudithook(_refuse)
        examples.SHARE = 3
        parent = settings.get_profile("any machine")
        settings.register_profile("inner loop", parent, max_examples=examples.share_of(100))
        settings.load_profile("inner loop")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    _running.append(item.nodeid)  # from its fixtures' setup to their teardown
    try:
        return (yield)
    finally:
        _running.pop()


def _starts_processes(item: pytest.Item) -> bool:
    # The last parts of an id are parameters, of which "postgres" is a server's process.
    database = "postgres" in item.name.partition("[")[2]
    fixtures = _FIXTURES & set(getattr(item, "fixturenames", ()))
    return database or bool(fixtures) or any(item.get_closest_marker(m) for m in _MARKS)


def _refuse(event: str, _: Any) -> None:
    if _running and event in _EVENTS:
        raise AssertionError(f"{_running[-1]} starts a process: mark it `processes`")
