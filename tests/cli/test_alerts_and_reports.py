"""`trainhall alerts …`, `trainhall report …` and the same in Python against one coordinator."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from support.cluster.web import FIRST_ADMIN, served
from typer.main import get_command

from trainhall.api.app import create_app
from trainhall.api.settings import Settings
from trainhall.cli.base.errors import NotFoundError, UsageError, WrongStateError
from trainhall.cli.main import app
from trainhall.client import Client

HOOK = "https://example.org/hook"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("data")
    settings = Settings(data_dir=folder, database_url=f"sqlite:///{folder}/trainhall.db")
    with capture_logs(), served(create_app(settings)) as address:
        yield address


class Cli:
    def __init__(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.url, self._capsys = url, capsys

    def __call__(self, *arguments: str, group: str = "alerts") -> str:
        """Return what it prints."""
        self._capsys.readouterr()
        command = [group, *arguments, "--url", self.url]
        get_command(app).main(command, prog_name="trainhall", standalone_mode=False)
        return self._capsys.readouterr().out


@pytest.fixture
def cli(url: str, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(url, capsys)


def test_alert_is_added_listed_changed_and_removed(cli: Cli) -> None:
    on = ("--on", "job.failed, job.stuck", "--on", "job.waiting")
    added = cli("add", "nightly", *on, "--webhook", HOOK, "--waiting", "2h", "--user", "maria")
    assert "whsec_" in added
    assert "2 h" in added
    listed = cli("ls")
    assert "user maria" in listed
    assert f"webhook {HOOK}" in listed
    assert "whsec_" not in cli("show", "nightly")
    changed = json.loads(cli("change", "nightly", "--name", "daily", "--on", "job.failed",
                             "-o", "json"))  # fmt: skip
    assert (changed["name"], changed["on"]) == ("daily", ["job.failed"])
    assert changed["target"]["url"] == HOOK
    assert f"disabled: disabled by {FIRST_ADMIN}" in cli("disable", changed["id"][:6])
    assert "enabled" in cli("enable", "daily")
    cli("remove", "daily")
    assert cli("ls") == ""


def test_test_message_is_in_the_log(cli: Cli) -> None:
    cli("add", "me", "--on", "node.down", "--browser")
    sent = cli("test", "me", "-o", "name").strip()
    assert json.loads(cli("log", "me", "-o", "json"))[0]["id"] == sent
    assert "this is a test of the alert “me”" in cli("log", "me")
    cli("remove", "me")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--browser",), "--on is required"),
        (("--on", "job.failed"), "give a target"),
        (("--on", "job.failed", "--browser", "--mail", "a@b"), "one target"),
        (("--on", "job.failed", "--browser", "--user", "a", "--project", "b"), "give one of"),
        (("--on", "job.done", "--browser"), "on.0: must be one of job.completed"),
    ],
)
def test_wrong_arguments_are_explained(cli: Cli, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        cli("add", "x", *arguments)


def test_unknown_alert_is_not_found(cli: Cli) -> None:
    with pytest.raises(NotFoundError, match="there is no alert 'none'"):
        cli("show", "none")


def test_python_client_manages_alerts(url: str) -> None:
    with Client(url) as hall:
        made = hall.add_alert("py", ["job.failed"], {"kind": "webhook", "url": HOOK})
        assert made["secret"].startswith("whsec_")
        assert hall.change_alert("py", enabled=False)["enabled"] is False
        sent = hall.test_alert(made["id"])
        assert [each["id"] for each in hall.deliveries("py")] == [sent["id"]]
        assert [each["name"] for each in hall.alerts()] == ["py"]
        hall.remove_alert("py")
        assert list(hall.alerts()) == []


def test_report_is_created_listed_shown_and_deleted(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "rates.md"
    file.write_text("# Rates\n\nBest: *0.01*\n")
    made = cli("create", str(file), "-o", "name", group="report").strip()
    again = cli("create", str(file), "--title", "Rates 2", group="report")
    shown = json.loads(cli("show", "Rates 2", "-o", "json", group="report"))
    link = f"{cli.url}/reports/{shown['id']}"
    assert again.endswith(f"  {link}\n")
    assert link in cli("ls", group="report")
    assert cli("show", made, group="report") == "# Rates\n\nBest: *0.01*\n"
    for each in json.loads(cli("ls", "-o", "json", group="report")):
        assert "deleted" in cli("rm", each["id"], "--yes", group="report")
    assert cli("ls", group="report") == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("create", "-"), "give a --title"),
        (("create", "/none.md"), "cannot read /none.md: No such file"),
        (("create", __file__, "--title", " "), "title: must have a visible character"),
    ],
)
def test_wrong_report_is_explained(cli: Cli, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        cli(*arguments, group="report")


def test_python_client_manages_reports(url: str) -> None:
    with Client(url) as hall:
        made = hall.create_report("py", "none yet")
        changed = hall.change_report(made, text="some")
        with pytest.raises(WrongStateError, match="after you opened it"):
            hall.change_report(made, text="others")
        assert hall.report("py") == changed
        assert [each["title"] for each in hall.reports()] == ["py"]
        hall.delete_report(made["id"])
        assert list(hall.reports()) == []
