"""`trainhall server --mock`, `trainhall up --mock`, and the variable that says the same."""

from typing import Any

import pytest
from typer.testing import CliRunner

from trainhall.api import server
from trainhall.cli.base.errors import UsageError
from trainhall.cli.main import app


@pytest.mark.parametrize(
    ("arguments", "environment", "mock"),
    [
        (["server"], {}, False),
        (["server", "--mock"], {}, True),
        (["server"], {"MOCK_DB": "true"}, True),
        (["up", "--mock"], {}, True),
        (["up"], {"MOCK_DB": "true"}, True),
    ],
)
def test_cluster_is_simulated_when_asked_for(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], environment: dict[str, str], mock: bool
) -> None:
    given: dict[str, Any] = {}

    def serve(**options: Any) -> int:
        given.update(options)
        return 0

    monkeypatch.setattr(server, "serve", serve)
    result = CliRunner().invoke(app, arguments, env=environment)
    assert result.exit_code == 0, result.output
    assert given["mock"] is mock


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["--demo", "examples/digits.yaml"], "--mock cannot run any"),
        (["--once"], "--once needs --demo"),
    ],
)
def test_simulated_cluster_runs_no_demo(more: list[str], why: str) -> None:
    result = CliRunner().invoke(app, ["up", "--mock", *more])
    assert isinstance(result.exception, UsageError)
    assert why in str(result.exception)
