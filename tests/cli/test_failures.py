"""Why a job failed is said once."""

from typing import Any

from trainhall.cli.failures import last_words

JOB = {"id": "j", "state": "failed", "reason": "rank 1 ended with exit code 1: KeyError: 3"}
HINT = "Read more with `trainhall logs j`."


class Coordinator:
    def __init__(self, rank: int | None, tail: str) -> None:
        self._failure = {"rank": rank, "log_tail": tail}

    def items(self, path: str) -> list[Any]:
        assert path == "/training/jobs/j/attempts"
        return [{"attempt": 1, "failure": None}, {"attempt": 2, "failure": self._failure}]


def words(rank: int | None, tail: str, **more: Any) -> str | None:
    client: Any = Coordinator(rank, tail)
    return last_words(client, JOB, **more)


def test_a_traceback_is_shown_without_the_exception_that_the_reason_tells() -> None:
    told = words(1, "[rank1]: Traceback\n[rank1]:   line 3\n[rank1]: KeyError: 3\n")
    assert told == (
        "The last lines of rank 1 in attempt 2\n  [rank1]: Traceback\n  [rank1]:   line 3\n" + HINT
    )


def test_what_says_no_more_than_the_reason_is_left_out() -> None:
    assert words(1, "KeyError: 3\n") == HINT
    assert words(0, "Traceback\nKeyError: 3\n", seen_rank=0) == HINT
    assert words(1, "Traceback\nKeyError: 3\n", seen_rank=0) != HINT


def test_a_last_line_that_only_happens_to_be_in_the_reason_is_shown() -> None:
    told = words(1, "Traceback\nKeyError: 3\nexit code\n")
    assert told is not None
    assert "KeyError: 3\n  exit code\n" in told


def test_an_exception_of_several_lines_is_told_once() -> None:
    reason = "rank 1 failed: ValueError: no such column: it is one of a, b; no restart is left"
    tail = (
        "[rank1]: Traceback\n[rank1]: ValueError: no such column:\n[rank1]:   it is one of a, b\n"
    )
    client: Any = Coordinator(1, tail)
    told = last_words(client, JOB | {"reason": reason})
    assert told == "The last lines of rank 1 in attempt 2\n  [rank1]: Traceback\n" + HINT
