"""Why a connection is closed, within the bounds of its close frame."""

import pytest

from trainhall.cluster.gateway.channel import close_reason


@pytest.mark.parametrize("text", ["", "removed", "x" * 500, "作" * 99, "é" * 62, "😀" * 31])
def test_close_reason_fits_its_frame(text: str) -> None:
    reason = close_reason(text)
    assert text.startswith(reason)
    assert len(reason.encode()) <= 123
    assert reason == text or len(reason.encode()) > 119


def test_close_reason_replaces_lone_surrogates() -> None:
    assert close_reason("node \ud800") == "node ?"
