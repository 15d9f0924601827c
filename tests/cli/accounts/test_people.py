"""Users, groups, projects and narrowed tokens from the command line."""

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from structlog.testing import capture_logs
from support.cluster.web import bearer, served
from support.login.accounts import cheap_passwords
from typer.main import get_command

from trainhall.api.app import create_app
from trainhall.api.settings import Settings
from trainhall.cli.base.errors import CliError, NotAllowedError, UsageError, WrongStateError
from trainhall.cli.main import app


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    settings = Settings(data_dir=folder, database_url=f"sqlite:///{folder}/trainhall.db")
    with capture_logs(), cheap_passwords(), served(create_app(settings)) as address:
        yield address


Cli = Callable[..., str]


@pytest.fixture
def cli(
    url: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Cli:
    """Commands of the first admin; return what they print."""
    admin = bearer(folder)["Authorization"].removeprefix("Bearer ")

    def run(*arguments: str, given: str = "", token: str = admin) -> str:
        monkeypatch.setenv("TRAINHALL_TOKEN", token)
        monkeypatch.setattr(sys, "stdin", io.StringIO(given))
        capsys.readouterr()
        command = [*arguments, "--url", url]
        get_command(app).main(command, prog_name="trainhall", standalone_mode=False)
        return capsys.readouterr().out

    return run


def test_lab_is_set_up(cli: Cli, url: str) -> None:
    cli("users", "add", "maria", "--password-stdin", given="first password\n")
    cli("projects", "add", "vision")
    cli("groups", "add", "lab")
    assert "maria" in cli("groups", "members", "lab", "--add", "maria")
    shown = cli(
        "projects", "members", "vision", "--add", "group:lab=viewer", "--add", "maria=member"
    )
    assert [line.split()[0] for line in shown.splitlines()[1:]] == ["group:lab", "maria"]
    with pytest.raises(UsageError, match="maria=member"):
        cli("projects", "members", "vision", "--add", "maria")
    cli("projects", "set", "vision", "--limit", "priority=0")
    cli("projects", "set", "vision", "--limit", "paths=[/data/a, /data/b]")
    assert "priority=0, paths=[/data/a, /data/b]" in cli("projects", "ls")
    with pytest.raises(UsageError, match="no limit; use priority, devices, paths"):
        cli("projects", "set", "vision", "--limit", "priorities=1")
    assert "maria" in cli("users", "ls", "-o", "name").split()
    with httpx.Client(base_url=f"{url}/api/v1") as browser:
        login = {"name": "maria", "password": "first password"}
        assert browser.post("/auth/login", json=login).status_code == 204
        made = browser.post("/auth/tokens", json={"name": "shell"})
    token = made.json()["token"]
    assert "vision (member)" in cli("whoami", token=token)
    lines = "first password\nsecond password\n"
    cli("users", "set", "maria", "--password-stdin", given=lines, token=token)
    narrow = cli(
        "tokens", "create", "board", "--project", "vision", "--role", "viewer", token=token
    )
    assert "viewer in vision" in cli("tokens", "ls", token=token)
    assert "vision (viewer)" in cli("whoami", token=narrow.strip())
    with pytest.raises(NotAllowedError, match="narrowed"):
        cli("tokens", "create", "another", token=narrow.strip())
    cli("projects", "members", "vision", "--remove", "maria")
    assert "vision (viewer)" in cli("whoami", token=token)
    cli("groups", "rm", "lab")
    assert "vision" not in cli("whoami", token=token)
    cli("users", "rm", "maria", "--yes")
    with pytest.raises(NotAllowedError):
        cli("whoami", token=token)
    (removed,) = json.loads(cli("users", "ls", "--removed", "-o", "json"))
    assert removed["name"] == "maria"
    cli("users", "set", "maria", "--restore", "--admin")
    cli("projects", "rm", "vision")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("users add a\u202eb", r"must not contain '\\u202e' \(character 2\) \(given: a\\u202eb\)"),
        ("users add " + "x" * 300, "name: may have at most 128 characters"),
        ("users set nobody --admin", "no user 'nobody'"),
        ("users rm nobody --yes", "no user 'nobody'"),
        ("groups members nolab --add maria", "no group 'nolab'"),
        ("projects members default --add maria=boss", "one of viewer, member, maintainer"),
        ("projects members default --remove \u202e", r"no member '\\u202e'"),
        ("tokens create ci --expires 99999999d", "--expires is too long"),
        ("tokens create ci --project nowhere", "in a project 'nowhere'"),
        ("tokens rm ?", "'' is not a name"),
    ],
)
def test_bad_input_is_explained(cli: Cli, command: str, message: str) -> None:
    with pytest.raises(CliError, match=message) as error:
        cli(*("" if each == "?" else each for each in command.split()))
    assert str(error.value).isprintable()


def test_service_account_scrapes_figures(cli: Cli, url: str) -> None:
    cli("users", "add", "prometheus", "--service")
    command = ("tokens", "create", "scrape", "--user", "prometheus", "--scope", "metrics")
    token = cli(*command).strip()
    header = {"Authorization": f"Bearer {token}"}
    assert httpx.get(f"{url}/metrics", headers=header).status_code == 200
    for path in ("/api/v1/auth/me", "/api/v1/training/jobs", "/docs", "/api/v1/nothing"):
        assert httpx.get(f"{url}{path}", headers=header).status_code == 403
    assert "metrics" in cli("tokens", "ls", "--user", "prometheus")
    cli("tokens", "rm", "scrape", "--user", "prometheus")
    assert httpx.get(f"{url}/metrics", headers=header).status_code == 401


def test_node_is_limited_to_projects(cli: Cli) -> None:
    cli("nodes", "add", "gpu-07")
    assert "JOBS OF" not in cli("nodes", "ls")
    cli("nodes", "set", "gpu-07", "--projects", "default")
    assert "JOBS OF" in cli("nodes", "ls")
    assert ["jobs", "of", "default"] in map(str.split, cli("nodes", "show", "gpu-07").splitlines())
    cli("users", "add", "outsider", "--service")
    token = cli("tokens", "create", "a", "--user", "outsider").strip()
    assert "other projects only" in cli("nodes", "show", "gpu-07", token=token)
    assert "default" not in cli("nodes", "ls", token=token)
    cli("nodes", "remove", "gpu-07")


def test_errors_have_their_kinds(cli: Cli) -> None:
    with pytest.raises(WrongStateError, match="cannot be deleted"):
        cli("projects", "rm", "default")
    with pytest.raises(UsageError, match="not a name"):
        cli("users", "rm", "..", "--yes")
    with pytest.raises(UsageError, match="confirm with --yes"):
        cli("users", "rm", "maria")
    with pytest.raises(UsageError, match="give what to change"):
        cli("users", "set", "maria")
