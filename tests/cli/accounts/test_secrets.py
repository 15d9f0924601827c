"""`trainhall secrets`: values come by standard input alone, and no command shows one."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from trainhall.cli.accounts import secrets
from trainhall.cli.base.errors import UsageError
from trainhall.cli.main import app

ME = {"admin": False, "projects": [
    {"name": "speech", "role": "viewer"}, {"name": "vision", "role": "maintainer"},
]}  # fmt: skip


class Client:
    def __init__(self, me: dict[str, Any]) -> None:
        self.me = me
        self.asked: list[tuple[str, str, Any]] = []

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        return

    def get(self, path: str) -> Any:
        assert path == "/auth/me"
        return self.me

    def items(self, path: str) -> list[Any]:
        self.asked.append(("GET", path, None))
        return [{"name": "HF_TOKEN", "updated_at": "2026-01-01T00:00:00Z", "updated_by": "maria"}]

    def request(self, method: str, path: str, json: Any = None) -> None:
        self.asked.append((method, path, json))


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.delenv("TRAINHALL_PROJECT", raising=False)
    made = Client(ME)
    monkeypatch.setattr(secrets, "connect", lambda _: made)
    return made


@pytest.fixture
def command(client: Client) -> Callable[..., str]:
    def run(*arguments: str, value: str | bytes = "") -> str:
        done = CliRunner().invoke(app, ["secrets", *arguments], input=value)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == 0, done.output
        return done.output

    return run


def test_value_is_read_from_standard_input(client: Client, command: Callable[..., str]) -> None:
    shown = command("set", "HF_TOKEN", value="canary \n")
    assert client.asked == [("PUT", "/projects/vision/secrets/HF_TOKEN", {"value": "canary "})]
    assert "canary" not in shown
    assert "Set HF_TOKEN for project vision." in shown
    command("set", "KEY", "--user", value="two\nlines\r\n")
    assert client.asked[-1] == ("PUT", "/users/me/secrets/KEY", {"value": "two\nlines"})
    command("rm", "KEY", "--user")
    assert client.asked[-1][:2] == ("DELETE", "/users/me/secrets/KEY")


def test_bad_input_sends_nothing(
    client: Client, command: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for arguments, value, message in (
        (["HF_TOKEN=canary"], "x", "'HF_TOKEN' must be the name .* asked for, never an argument"),
        (["LD_PRELOAD"], "x", "'LD_PRELOAD' is reserved"),
        (["KEY"], "\n", "the value of KEY is empty"),
        (["KEY"], b"\xff", "not text in UTF-8"),
        (["KEY", "--user", "--project", "vision"], "x", "exclude each other"),
    ):
        with pytest.raises(UsageError, match=message) as refused:
            command("set", *arguments, value=value)
        assert "canary" not in str(refused.value)
    client.me = {"admin": False, "projects": []}
    with pytest.raises(UsageError, match=r"give --project NAME \(none\), or --user"):
        command("set", "KEY", value="x")
    assert client.asked == []
    monkeypatch.setenv("TRAINHALL_PROJECT", "speech")
    command("set", "KEY", value="x")
    assert client.asked[-1][1] == "/projects/speech/secrets/KEY"


def test_list_has_projects_and_own(client: Client, command: Callable[..., str]) -> None:
    listed = json.loads(command("ls", "-o", "json"))
    assert [each["for"] for each in listed] == ["project vision", "your own jobs"]
    assert "HF_TOKEN" in command("ls", "--user")
    assert [path for _, path, _ in client.asked] == [
        "/projects/vision/secrets", "/users/me/secrets", "/users/me/secrets",
    ]  # fmt: skip
