"""Reasons name no job of another project."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from support.cluster.facts import NOW
from support.cluster.facts import node_facts as node
from support.cluster.scheduling import cluster, job, running

from trainhall.cluster.lifecycle.reasons import FOREIGN_JOB, ReasonCode, event_data
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.quotas import Quotas
from trainhall.cluster.reconcile.resize import preempted
from trainhall.cluster.scheduling.forecast import foresee
from trainhall.cluster.snapshot.model import JobFacts

JOBS = {"job", "jobs", "ahead", "devices", "quota"}
"""Parameters of reasons that may name jobs."""
NAMED = "canary"


def theirs(number: int, workers: int = 2, **more: object) -> JobFacts:
    return job(number, workers, project="speech", name=NAMED, **more)


def own(number: int, **more: object) -> JobFacts:
    return job(number, 2, **{"project": "vision", **more})


def _reason(
    code: ReasonCode, *ahead: JobFacts, options: ClusterOptions | None = None, **more: object
) -> str:
    """The reason of a job of the one project on two slots that the other's job holds."""
    holder = running(NAMED, 1, {"a": [0, 1]}, project="speech", name=NAMED, in_place=False)
    runs = [(replace(holder[0], user="maria"), holder[1])]
    facts = cluster([node("a", 2)], runs, [*ahead, own(9, **more)])
    entries = foresee(NOW, facts, options or ClusterOptions(preemption=False))
    entry = next(e for e in entries if e.job.number == 9)
    assert entry.reason.code is code
    return entry.text


def _quota() -> str:
    options = ClusterOptions(quotas=Quotas(users={"maria": 3}))
    return _reason(ReasonCode.QUOTA_EXCEEDED, options=options, user="maria")


def _too_small() -> str:
    options = ClusterOptions(quotas=Quotas(users={"maria": 1}))
    return _reason(ReasonCode.QUOTA_TOO_SMALL, options=options, user="maria")


def _preempted() -> str:
    reason = preempted(own(1), theirs(2))
    assert event_data(reason) == {}
    return reason.text


SITUATIONS: dict[ReasonCode, Callable[[], str]] = {
    ReasonCode.WAITING_FOR_DEVICES: lambda: _reason(ReasonCode.WAITING_FOR_DEVICES),
    ReasonCode.WAITING_FOR_JOB: lambda: _reason(ReasonCode.WAITING_FOR_JOB, theirs(2)),
    ReasonCode.WAITING_FOR_PREEMPTION: lambda: _reason(
        ReasonCode.WAITING_FOR_PREEMPTION, options=ClusterOptions(), priority=5
    ),
    ReasonCode.QUOTA_EXCEEDED: _quota,
    ReasonCode.QUOTA_TOO_SMALL: _too_small,
    ReasonCode.PREEMPTED: _preempted,
    ReasonCode.PLACED: lambda: "",  # devices alone
}


def test_every_reason_that_names_jobs_has_a_situation() -> None:
    named = {
        code for code in ReasonCode if JOBS & set(re.findall(r"{(\w+)", code.template))
    }  # fmt: skip
    assert named == set(SITUATIONS)


@pytest.mark.parametrize("code", list(SITUATIONS))
def test_reasons_name_no_job_of_another_project(code: ReasonCode) -> None:
    text = SITUATIONS[code]()
    assert NAMED not in text
    assert "speech" not in text
    if code not in (ReasonCode.QUOTA_TOO_SMALL, ReasonCode.PLACED):
        assert FOREIGN_JOB in text


def test_holders_of_other_projects_are_counted_together() -> None:
    runs = [
        running(f"r{i}", i, {"a": [2 * i, 2 * i + 1]}, project=project, name=f"name{i}")
        for i, project in enumerate(("speech", "vision", "audio"))
    ]
    facts = cluster([node("a", 6)], runs, [own(9)])
    (entry,) = foresee(NOW, facts, ClusterOptions())
    assert entry.reason.text.endswith(
        "0 of 6 are free, “name1” (r1) holds 2, 2 jobs of other projects hold 4"
    )
    assert entry.forecast.startswith("start time unknown: no end is known for “name1” (r1) (it")


def test_shared_group_words_reasons_for_each_project() -> None:
    runs = [running("r", 1, {"a": [0, 1]}, project="vision", name="mine")]
    facts = cluster([node("a", 2)], runs, [own(2, name="first"), own(3), theirs(4)])
    first, second, third = foresee(NOW, facts, ClusterOptions())
    assert "waiting for “first” (job2, 2 CPU slots)" in second.text
    assert f"waiting for {FOREIGN_JOB} (2 CPU slots)" in third.text
    assert "first" not in third.text
    assert "mine" in first.text
