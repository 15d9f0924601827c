"""Mock mode in the test's own process, with a minute of history in place of 45."""

import pytest

from trainhall.cluster.simulator.mock import coordinator, scenario


def shorten_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let mock mode begin a minute before the present."""
    for module in (coordinator, scenario):
        monkeypatch.setattr(module, "OPENING_SECONDS", 60.0)
