"""What the options of commands refuse, and in which words."""

import sys

import pytest
from typer.testing import CliRunner

from trainhall.cli.main import app, main


@pytest.mark.parametrize(("command", "option", "message"), [
    (("ls", "-n", "0"), "--limit", "must be at least 1 (given: 0)"),
    (("up", "--port", "99999"), "--port", "must be at most 65,535 (given: 99999)"),
    (("up", "--port", "many"), "--port", "must be an integer (given: many)"),
    (("top", "--every", "0"), "--every", "0 is too short; use at least 0.2s"),
    (("ls", "-o", "jsn"), "--output", "'jsn' is not one of 'table', 'json', 'yaml', 'name'."),
    (("plan", "job.yaml", "-o", "name"), "--output",
     "'name' is not one of 'table', 'json', 'yaml'."),
    (("bench", "collectives", "-o", "name"), "--output",
     "'name' is not one of 'table', 'json', 'yaml'."),
    (("bench", "schedule", "--ranks", "0"), "--ranks", "must be at least 1 (given: 0)"),
])  # fmt: skip
def test_refused_value_lists_allowed_values(
    command: tuple[str, ...], option: str, message: str
) -> None:
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 2
    assert option in done.output
    assert f": {message}\n" in done.output


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["submit"], "\n\ntrainhall: Missing argument 'SPEC | SCRIPT [-- ARGS] | -- COMMAND'.\n"),
        (["--foo"], "\n\ntrainhall: No such option: --foo\n"),
    ],
)
def test_usage_errors_begin_as_all_others(
    arguments: list[str],
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["trainhall", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(text)
