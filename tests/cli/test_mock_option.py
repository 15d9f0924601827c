"""`trainhall server --mock`, and the variable that says the same."""

from typing import Any

import pytest
from typer.testing import CliRunner

from trainhall.api import server
from trainhall.cli.main import app


@pytest.mark.parametrize(
    ("arguments", "environment", "mock"),
    [([], {}, False), (["--mock"], {}, True), ([], {"MOCK_DB": "true"}, True)],
)
def test_the_cluster_is_simulated_when_asked_for(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], environment: dict[str, str], mock: bool
) -> None:
    given: dict[str, Any] = {}

    def serve(**options: Any) -> int:
        given.update(options)
        return 0

    monkeypatch.setattr(server, "serve", serve)
    result = CliRunner().invoke(app, ["server", *arguments], env=environment)
    assert result.exit_code == 0, result.output
    assert given["mock"] is mock
