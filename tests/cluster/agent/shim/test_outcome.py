"""A rank's failure, as its output describes it."""

from pathlib import Path

import pytest

from trainhall.cluster.agent.shim.outcome import describe_failure
from trainhall.training.link.failure import Cause
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


NCCL_WARNING = (
    "[rank0]:[W1126 11:13:14.180223 ProcessGroupNCCL.cpp:1553] Warning: WARNING: "
    "destroy_process_group() was not called before program exit (function operator())\n"
)


@pytest.mark.parametrize(
    ("stderr", "message"),
    [
        (f"[rank0]: ValueError: no such file\n{NCCL_WARNING}", "ValueError: no such file"),
        (f"ValueError: no such file\n{NCCL_WARNING}\n{NCCL_WARNING}", "ValueError: no such file"),
        ("[E1126 11:13:14.1 socket.cpp:9] refused\n", "[E1126 11:13:14.1 socket.cpp:9] refused"),
        ("[W1126 11:13:14.1 socket.cpp:9] slow\n", "[W1126 11:13:14.1 socket.cpp:9] slow"),
    ],
)
def test_warnings_at_the_exit_do_not_hide_the_exception(
    tmp_path: Path, stderr: str, message: str
) -> None:
    folder = AttemptFolder(tmp_path)
    folder.rank(0).mkdir(parents=True)
    folder.stderr(0).write_text(stderr)
    rank = RankState(rank=0, exit_code=1)
    failure = describe_failure(folder, rank, out_of_memory=False)
    assert failure.message == f"rank 0 ended with exit code 1: {message}"


def test_reported_syntax_error_is_final(tmp_path: Path) -> None:
    folder = AttemptFolder(tmp_path)
    folder.rank(0).mkdir(parents=True)
    events = EventSpool(folder.events(0), 0)
    # A script that imports `trainhall` before a module of its own reports its exception.
    events.append("failure", {"type": "SyntaxError", "message": "invalid syntax (model.py)"})
    rank = RankState(rank=0, exit_code=1)
    failure = describe_failure(folder, rank, out_of_memory=False)
    assert (failure.final, failure.evidence) == (True, "SyntaxError")


def test_damaged_output_hides_no_failure(tmp_path: Path) -> None:
    folder = AttemptFolder(tmp_path)
    folder.stderr(0).mkdir(parents=True)  # no read succeeds
    failure = describe_failure(folder, RankState(rank=0, exit_code=3), out_of_memory=False)
    assert failure.message == "rank 0 ended with exit code 3"
    assert failure.log_tail == ""
