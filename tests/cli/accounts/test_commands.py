"""Logins and tokens from the command line, against a coordinator that asks for a credential."""

import io
import json
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from structlog.testing import capture_logs
from support.cluster.web import bearer, served
from typer.main import get_command

from trainhall.api.app import create_app
from trainhall.api.host import credentials
from trainhall.api.settings import Settings
from trainhall.cli.accounts import audit
from trainhall.cli.base.connect import connect
from trainhall.cli.base.errors import CliError, NotAllowedError, NotFoundError, UsageError
from trainhall.cli.main import app
from trainhall.cli.nodes.doctor_checks import check_login
from trainhall.client import Client
from trainhall.cluster.accounts.secrets import is_token, token_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    database = f"sqlite:///{folder}/trainhall.db"
    settings = Settings(data_dir=folder, database_url=database, auth="token")
    with capture_logs(), served(create_app(settings)) as address:
        yield address


class Cli:
    def __init__(
        self, url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.url, self._capsys, self._monkeypatch = url, capsys, monkeypatch
        self.err = ""

    def __call__(self, *arguments: str, given: str = "") -> str:
        """Return what it prints."""
        self._monkeypatch.setattr(sys, "stdin", io.StringIO(given))
        self._capsys.readouterr()
        command = [*arguments, "--url", self.url]
        try:
            get_command(app).main(command, prog_name="trainhall", standalone_mode=False)
        finally:
            out, self.err = self._capsys.readouterr()
        return out


@pytest.fixture
def cli(
    url: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Cli:
    """Commands of a user who has no credential."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("TRAINHALL_TOKEN", raising=False)
    return Cli(url, capsys, monkeypatch)


@pytest.fixture
def admin(cli: Cli, folder: Path) -> Cli:
    cli("login", given=bearer(folder)["Authorization"].removeprefix("Bearer ") + "\n")
    return cli


def test_user_without_credential_learns_how_to_log_in(cli: Cli) -> None:
    advice = f"not logged in to {cli.url}: run `trainhall login {cli.url}`"
    for command in (("ls",), ("open",), ("login", "--print-header")):
        with pytest.raises(NotAllowedError, match=advice):
            cli(*command)


def test_pasted_token_is_stored_privately(admin: Cli, tmp_path: Path, url: str) -> None:
    path = tmp_path / "trainhall" / "credentials"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(json.loads(path.read_text())) == [url]
    assert "Logged in" in admin.err
    assert json.loads(admin("whoami", "-o", "json"))["how"] == "token"
    header = admin("login", "--print-header").strip()
    name, _, value = header.partition(": ")
    assert httpx.get(f"{url}/metrics", headers={name: value}).status_code == 200
    admin("logout")
    with pytest.raises(NotAllowedError):
        admin("ls")
    with pytest.raises(CliError, match="no stored credential"):
        admin("logout")


def test_link_logs_commands_in_once(
    admin: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    link = admin("open").strip()
    assert link.startswith(f"{admin.url}/login#code=")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another"))
    admin("login", given=link)
    assert "admin" in admin("whoami")
    with Client(admin.url) as client:
        (mine,) = [
            token
            for token in client.request("GET", "/auth/tokens")["items"]
            if token["name"].startswith("login from ")
        ]
        assert client.request("GET", "/auth/sessions")["items"] == []
    with pytest.raises(NotAllowedError, match="used before"):
        admin("login", given=link)
    admin("tokens", "rm", mine["id"][:6])
    with pytest.raises(NotAllowedError):
        admin("whoami")


@pytest.mark.parametrize("text", ["", "hunter2", "th_" + "a" * 51])
def test_text_that_is_no_credential_is_refused(cli: Cli, text: str) -> None:
    with pytest.raises(UsageError, match="neither"):
        cli("login", given=text)


def test_tokens_are_created_listed_and_revoked(
    admin: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    token = admin("tokens", "create", "nightly", "--expires", "48h").strip()
    assert is_token(token)
    assert "nightly" in admin("tokens", "ls")
    assert token not in admin("tokens", "ls", "-o", "json")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "empty"))
    monkeypatch.setenv("TRAINHALL_TOKEN", token)
    admin("tokens", "rm", "nightly")
    with pytest.raises(NotAllowedError):
        admin("tokens", "ls")
    monkeypatch.delenv("TRAINHALL_TOKEN")
    with pytest.raises(NotAllowedError), Client(admin.url, token=token) as client:
        list(client.jobs())


def test_unknown_token_is_not_found(admin: Cli) -> None:
    with pytest.raises(NotFoundError):
        admin("tokens", "rm", "nothing")


@pytest.mark.parametrize("damage", ["cut off", "mistyped", "of a node", "with a break"])
def test_damaged_token_is_an_error(
    admin: Cli, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """Commands that fell back on a stored one would act as somebody else."""
    token = token_of("x" * 43)
    given = {
        "cut off": token[:20], "mistyped": token[:-1] + "x", "of a node": "thj_abc",
        "with a break": f"{token[:9]}\n{token[9:]}",
    }[damage]  # fmt: skip
    monkeypatch.setenv("TRAINHALL_TOKEN", given)
    with pytest.raises(NotAllowedError, match="TRAINHALL_TOKEN is no API token") as error:
        admin("whoami")
    assert given not in str(error.value)
    monkeypatch.setenv("TRAINHALL_TOKEN", " ")
    assert "admin" in admin("whoami")


def test_urls_of_one_address_share_a_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    credentials.store_token("http://127.0.0.1:8000", "one")
    for same in ("http://127.0.0.1:8000/", "http://localhost:8000", "HTTP://LOCALHOST:8000"):
        assert credentials.stored_token(same) == "one"
    for other in ("http://127.0.0.1", "https://127.0.0.1:8000", "http://127.0.0.1:8000/x"):
        assert credentials.stored_token(other) is None
    assert not credentials.remove_token("http://127.0.0.1:8000", "another")
    assert credentials.remove_token("http://localhost:8000", "one")
    assert credentials.stored_token("http://127.0.0.1:8000") is None


def test_damaged_file_of_credentials_holds_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "trainhall").mkdir()
    for text in ("", "[]", "{", '{"http://127.0.0.1:8000": 1}', '{"http://127.0.0.1:8000": {}}'):
        (tmp_path / "trainhall" / "credentials").write_text(text)
        assert credentials.stored_token("http://127.0.0.1:8000") is None
    credentials.store_token("http://127.0.0.1:8000", "one")
    assert credentials.stored_token("http://127.0.0.1:8000") == "one"


def test_doctor_says_who_may_use_the_coordinator(admin: Cli, tmp_path: Path) -> None:
    (known,) = check_login(admin.url)
    assert (known.status, "can read its credentials" in known.detail) == ("ok", True)
    admin("logout")
    (unknown,) = check_login(admin.url)
    assert (unknown.status, unknown.remedy) == ("warn", f"run `trainhall login {admin.url}`")
    settings = Settings(
        data_dir=tmp_path, database_url=f"sqlite:///{tmp_path}/open.db", auth="none"
    )
    with served(create_app(settings)) as url:
        (everyone,) = check_login(url)
    assert (everyone.status, "every job may" in everyone.detail) == ("warn", True)


def test_audit_log_is_printed(admin: Cli) -> None:
    admin("tokens", "create", "watched")
    lines = admin("audit", "--action", "token.create", "-o", "jsonl").splitlines()
    made = json.loads(lines[-1])
    assert (made["action"], made["fields"]["name"]) == ("token.create", [None, "watched"])
    table = admin("audit", "--last", "1")
    assert "token.create" in table
    assert "name: — → watched" in table
    assert len(table.splitlines()) == 2
    everything = json.loads(admin("audit", "--all", "--since", "1h", "-o", "json"))
    assert everything[-1] == made
    assert [row["id"] for row in everything] == sorted(row["id"] for row in everything)
    admin("audit", "--user", "nobody")
    assert admin.err == "No rows.\n"
    with pytest.raises(UsageError, match="table or"):
        admin("audit", "--follow", "-o", "json")
    admin("tokens", "create", "scrape", "--scope", "metrics")
    assert 'scopes: — → ["metrics"]' in admin("audit", "--last", "1")


def test_audit_log_is_followed(admin: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    (newest,) = json.loads(admin("audit", "--last", "1", "-o", "json"))
    with connect(admin.url) as client:
        made = iter([[], ["followed", "followed too"], ["last"]])

        def sleep(_seconds: float) -> None:
            for name in next(made):
                client.request("POST", "/auth/tokens", json={"name": name})

        monkeypatch.setattr(time, "sleep", sleep)
        rows = audit.following(client, newest["id"], {"action": "token"})
        found = [next(rows)["fields"]["name"][1] for _ in range(3)]
    assert found == ["followed", "followed too", "last"]
