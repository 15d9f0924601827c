"""The value that rates a run, and the reason for a missing one."""

import pytest

from trainhall.cluster.experiments.rating import missing_objective


@pytest.mark.parametrize(
    ("metric", "reported", "expected"),
    [
        ("loss", {}, "it reports no metric"),
        ("loss", {"loss": "NaN"}, "loss has no finite value"),
        ("los", {"loss": 1, "lr": 2}, "it reports loss, lr, not los; did you mean loss?"),
        ("val/f1", {"loss": 1, "val/accuracy": 1},
         "it reports loss, val/accuracy, not val/f1; did you mean val/accuracy?"),
        ("val/f1", {"val/accuracy": 1, "val/precision": 1},
         "it reports val/accuracy, val/precision, not val/f1"),
    ],
)  # fmt: skip
def test_missing_objective_lists_what_is_reported(
    metric: str, reported: dict[str, object], expected: str
) -> None:
    assert missing_objective(metric, reported) == expected
