"""The last lines of a failed rank, as `trainhall show` and `submit -f` print them."""

from typing import Any

from trainhall.cli.jobs.failures import last_words

JOB = {"id": "j", "state": "failed", "reason": "rank 1 ended with exit code 1: KeyError: 3"}
HINT = "View all logs with `trainhall logs j`."


class Coordinator:
    def __init__(self, rank: int | None, tail: str) -> None:
        self._failure = {"rank": rank, "log_tail": tail}

    def items(self, path: str) -> list[Any]:
        assert path == "/training/jobs/j/attempts"
        return [{"attempt": 1, "failure": None}, {"attempt": 2, "failure": self._failure}]


def words(rank: int | None, tail: str, **more: Any) -> str | None:
    client: Any = Coordinator(rank, tail)
    return last_words(client, JOB, **more)


def test_last_lines_end_with_the_exception() -> None:
    assert words(1, "[rank1]: Traceback\n[rank1]:   line 3\n[rank1]: KeyError: 3\n") == (
        "Last lines of rank 1 in attempt 2\n"
        "  [rank1]: Traceback\n  [rank1]:   line 3\n  [rank1]: KeyError: 3\n" + HINT
    )


def test_last_lines_skip_a_rank_already_shown() -> None:
    assert words(0, "Traceback\nKeyError: 3\n", seen_rank=0) == HINT
    assert words(1, "Traceback\nKeyError: 3\n", seen_rank=0) != HINT


def test_last_lines_are_empty_without_output() -> None:
    assert words(1, "") == HINT
