"""What a run of many files needs: long ones first, failures at once, and where the time went."""

import math
import os
import re
from collections import Counter, defaultdict
from contextlib import ExitStack
from typing import Any

import pytest
from support.forking.forks import shared_parents
from support.forking.workers import forked_workers

_SHOWN = 10
_SECONDS = "trainhall_seconds"
"""Where workers, and pytest's cache, have how long each file took when it last ran."""
_CLUSTERS = ("acceptance", "browser")
"""Marks of tests that take seconds; most others take a hundredth of one."""
_RANKS = {"ranks", "run", "coordinator"}
"""Fixtures of tests that start ranks or an agent alone."""
_LONG = re.compile(
    r"/simulator/test_|_machine\.py|test_(table|mock_mode|many_jobs|recurring_statements)\.py"
)
"""Files of a few tests that live through many hours of a cluster, or send thousands of requests."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let the files that take longest come first, so that no worker ends long after the others."""
    if not hasattr(config, "workerinput"):
        return
    guesses: Counter[str] = Counter()
    for item in items:
        guesses[_file(item.nodeid)] += _guess(item)
    known = config.workerinput.get(_SECONDS, {})
    # A stable sort: tests of one file stay in their order. Files that never ran come first.
    items.sort(key=lambda i: (-known.get(file := _file(i.nodeid), math.inf), -guesses[file], file))


def _guess(item: pytest.Item) -> int:
    """How long a test takes, by what it starts; in no unit."""
    if any(item.get_closest_marker(mark) for mark in _CLUSTERS):
        return 100
    if _LONG.search(_file(item.nodeid)):
        return 50
    starts_ranks = _RANKS & set(getattr(item, "fixturenames", ()))
    return 20 if starts_ranks or item.get_closest_marker("processes") else 1


class WholeRun:
    """Names what failed when it does, since the whole may take a quarter of an hour, and keeps how
    long files took, in pytest's cache, for the next run's order."""

    def __init__(
        self, terminal: pytest.TerminalReporter, cache: pytest.Cache | None, key: str
    ) -> None:
        self._terminal = terminal
        self._cache = cache
        self._key = key
        # Read once: workers must agree on the order, whatever another run writes meanwhile.
        self._before = self._last_seconds()
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[_SECONDS] = self._before

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[_file(report.nodeid)] += report.duration
        if report.failed:
            self._terminal.ensure_newline()
            self._terminal.write_line(f"FAILED {report.nodeid} ({report.when})", red=True)

    def pytest_sessionfinish(self) -> None:
        if self._cache is not None:
            known = self._last_seconds()
            # The larger, since this run may have been of a part of a file.
            longest = {file: max(s, known.get(file, 0)) for file, s in self._seconds.items()}
            self._cache.set(self._key, known | longest)

    def pytest_terminal_summary(self) -> None:
        self._terminal.section(f"slowest {_SHOWN} files")
        for file, seconds in sorted(self._seconds.items(), key=lambda i: -i[1])[:_SHOWN]:
            self._terminal.write_line(f"{seconds:7.1f} s  {file}")

    def _last_seconds(self) -> dict[str, float]:
        return self._cache.get(self._key, {}) if self._cache is not None else {}


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    distributing = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if distributing and terminal is not None:
        kind = "no-processes" if config.getoption("no_processes") else "all"
        cache = getattr(config, "cache", None)  # unless pytest runs with `-p no:cacheprovider`
        config.pluginmanager.register(WholeRun(terminal, cache, f"{_SECONDS}/{kind}"))
    if distributing:
        shared = ExitStack()
        config.add_cleanup(shared.close)
        shared.enter_context(shared_parents())
        if hasattr(os, "pidfd_open"):  # Linux
            shared.enter_context(forked_workers(config.invocation_params.args))


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]
