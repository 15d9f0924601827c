"""The restart budget: what gives it back, and what ends a job before it is used up."""

import pytest
from support.cluster.facts import job_facts

from trainhall.cluster.reconcile.restart_policy import after_failure, is_same_failure
from trainhall.cluster.snapshot.model import JobFacts
from trainhall.training.link.failure import Cause, Failure

NO_MODULE = Failure(
    rank=0,
    exit_code=1,
    message="rank 0 ended with exit code 1: ModuleNotFoundError: No module named 'nope'",
)


def job(**more: object) -> JobFacts:
    return job_facts(**{"attempt": 2, "workers": 2} | more)


def failure(message: str, exit_code: int | None = 1, signal: int | None = None) -> Failure:
    return Failure(rank=1, exit_code=exit_code, signal=signal, message=message)


def test_first_failure_is_always_tried_again() -> None:
    after = after_failure(job(), NO_MODULE)
    assert (after.will_retry, after.restarts) == (True, 1)


def test_broken_device_costs_no_restart_however_often() -> None:
    broken = failure("CUDA error: uncorrectable ECC error").model_copy(
        update={"cause": Cause.DEVICE_FAULT}
    )
    after = after_failure(job(restarts=3, failed_before=broken), broken)
    assert (after.will_retry, after.restarts, after.is_free) == (True, 3, True)


def test_restart_policy_ends_after_same_failure() -> None:
    after = after_failure(job(restarts=1, failed_before=NO_MODULE), NO_MODULE)
    assert (after.will_retry, after.repeated) == (False, True)


def test_restart_policy_does_not_retry_user_errors() -> None:
    failed = failure(
        "rank 1 failed: BadDataError: params.root: there is no folder /data on this host"
    )
    final = failed.model_copy(update={"final": True})
    after = after_failure(job(), final)
    assert (after.will_retry, after.repeated, after.restarts) == (False, False, 1)
    assert after_failure(job(step=7), final).will_retry is False
    away = failure("rank 1 failed: BadDataError: /data/a can't be read: Stale file handle")
    assert after_failure(job(), away.model_copy(update={"final": True})).will_retry


def test_new_steps_give_the_budget_back() -> None:
    progressed = job(restarts=3, step=40, restarts_step=30, failed_before=NO_MODULE)
    after = after_failure(progressed, NO_MODULE)
    assert (after.will_retry, after.restarts, after.step) == (True, 1, 40)


def test_restart_policy_uses_budget_for_other_failures() -> None:
    other = failure("rank 1 ended with exit code 1: OSError: the file server is away")
    for restarts in (1, 2):
        assert after_failure(job(restarts=restarts, failed_before=NO_MODULE), other).will_retry
    last = after_failure(job(restarts=3, failed_before=NO_MODULE), other)
    assert (last.will_retry, last.repeated) == (False, False)


def test_restart_policy_forgets_failures_before_resume() -> None:
    assert after_failure(job(restarts=0, failed_before=NO_MODULE), NO_MODULE).will_retry


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("rank 0 failed: NameError: name 'x' is not defined", "rank 3 failed: NameError: name 'x' "
         "is not defined"),
        ("can't open file '/a/3f2a/1/code/train.py'", "can't open file '/a/3f2a/2/code/train.py'"),
        ("rank 0 failed: BadDataError: no folder /data",
         "rank 8 failed: BadDataError: no folder /data"),
        ("got <Net object at 0x7f01ab>", "got <Net object at 0x7fee03>"),
    ],
)  # fmt: skip
def test_restart_policy_matches_variants_of_one_failure(one: str, other: str) -> None:
    assert is_same_failure(failure(one), failure(other))


@pytest.mark.parametrize(
    "one",
    [
        failure("rank 1 was ended by SIGKILL", exit_code=None, signal=9),
        failure("checkpoint step-00000010-a1-g1 could not be fetched", exit_code=None),
        failure("rank 0 failed: RuntimeError: Connection closed by peer [10.0.0.7]:40312"),
        failure("rank 0 failed: DistBackendError: NCCL error: unhandled system error"),
        failure("rank 0 failed: TimeoutError: the store timed out"),
        failure("rank 0 ended with exit code 1: HTTPError: HTTP Error 503: busy"),
        failure("rank 0 failed: HTTPError: 502 Server Error: Bad Gateway for url: http://data"),
        failure("rank 0 failed: gaierror: [Errno -2] Name or service not known"),
        failure("rank 0 failed: OSError: [Errno 113] No route to host"),
        failure("rank 0 failed: OSError: [Errno 116] Stale file handle: '/mnt/data'"),
        failure("rank 0 failed: OSError: [Errno 5] Input/output error"),
        failure(
            "rank 0 failed: AcceleratorError: CUDA-capable device(s) is/are busy or unavailable"
        ),
        failure("rank 0 ended with exit code 1").model_copy(update={"without_message": True}),
    ],
)
def test_restart_policy_retries_transient_failures(one: Failure) -> None:
    assert not is_same_failure(one, one)


def test_restart_policy_stops_third_damaged_start() -> None:
    failed = Failure(
        message="no checkpoint to start from is whole: step-00000010-a1-g1: state.json",
        cause=Cause.BAD_CHECKPOINT,
    )
    assert after_failure(job(), failed).will_retry, (
        "the next one may find an older one that is good"
    )
    after = after_failure(job(restarts=1, failed_before=failed), failed)
    assert (after.will_retry, after.repeated, after.is_free) == (False, True, False)


def test_another_exit_code_is_another_failure() -> None:
    assert not is_same_failure(failure("it ended", exit_code=1), failure("it ended", exit_code=2))
