"""Texts of reasons."""

import pytest

from trainhall.cluster.lifecycle.reasons import Reason, ReasonCode


@pytest.mark.parametrize(
    "code", [ReasonCode.PAUSED_AT_STEP, ReasonCode.RESTORED, ReasonCode.PAUSED_AT_RUNG]
)
def test_steps_have_separators_of_thousands(code: ReasonCode) -> None:
    assert "step 12,000" in Reason.of(code, step=12_000).text
