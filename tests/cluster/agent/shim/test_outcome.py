"""A rank's failure, as its output describes it."""

from pathlib import Path

import pytest

from trainhall.cluster.agent.shim.outcome import describe_failure
from trainhall.training.link.failure_cause import Cause
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.link.spool import EventSpool
from trainhall.training.link.status import RankState

NOT_COMPILED = """  File "/code/train.py", line 3
    def main(:
             ^
SyntaxError: invalid syntax
"""


@pytest.mark.parametrize(
    ("stderr", "exit_code", "final"),
    [
        (NOT_COMPILED, 1, True),
        ("[rank0]: IndentationError: unexpected indent\n", 1, True),
        ("TabError: inconsistent use of tabs and spaces in indentation\n", 1, True),
        (f"{NOT_COMPILED}retrying without the plug-in\n", 1, False),
        (NOT_COMPILED, 3, False),
        # Another node may have the module.
        ("ModuleNotFoundError: No module named 'apex'\n", 1, False),
    ],
)
def test_syntax_error_is_final(tmp_path: Path, stderr: str, exit_code: int, final: bool) -> None:
    folder = AttemptFolder(tmp_path)
    folder.rank(0).mkdir(parents=True)
    folder.stderr(0).write_text(stderr)
    rank = RankState(rank=0, exit_code=exit_code)
    failure = describe_failure(folder, rank, out_of_memory=False)
    assert (failure.final, failure.cause) == (final, Cause.USER_ERROR)
    assert "another attempt" not in failure.evidence


def test_reported_syntax_error_is_final(tmp_path: Path) -> None:
    folder = AttemptFolder(tmp_path)
    folder.rank(0).mkdir(parents=True)
    events = EventSpool(folder.events(0), 0)
    # A script that imports `trainhall` before a module of its own reports its exception.
    events.append("failure", {"type": "SyntaxError", "message": "invalid syntax (model.py)"})
    rank = RankState(rank=0, exit_code=1)
    failure = describe_failure(folder, rank, out_of_memory=False)
    assert (failure.final, failure.evidence) == (True, "SyntaxError")
