"""Reasons of waiting jobs: who holds the devices, when they come free, and what to do."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

import pytest
from support.cluster.facts import NOW
from support.cluster.facts import node_facts as node
from support.cluster.scheduling import Runs, cluster, job, running

from trainhall.cluster.lifecycle.states import JobState, NodeState
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.queue.durations import Completed, Durations
from trainhall.cluster.quotas import Quotas
from trainhall.cluster.scheduling.forecast import foresee, foresee_new
from trainhall.cluster.scheduling.scheduler import QueueEntry
from trainhall.cluster.snapshot.model import JobFacts, NodeFacts

PLAIN = ClusterOptions()
DRAINED, DRAINING, LOST = NodeState.DRAINED, NodeState.DRAINING, NodeState.LOST

NONE_LIKE = ", and no job of its name or user has completed)"


def gpus(name: str, count: int = 8, **more: object) -> NodeFacts:
    return node(name, count, "cuda", **more)


def queue(
    nodes: Sequence[NodeFacts],
    runs: Sequence[Runs],
    *waiting: JobFacts,
    options: ClusterOptions = PLAIN,
) -> dict[str, QueueEntry]:
    return {e.job.id: e for e in foresee(NOW, cluster(nodes, runs, waiting), options)}


def reason_for(nodes: Sequence[NodeFacts], runs: Sequence[Runs], waiting: JobFacts) -> str:
    return queue(nodes, runs, waiting)[waiting.id].text


# When


def test_reasons_show_utc_times_and_other_days() -> None:
    late = NOW.replace(hour=23, minute=59, second=58)
    again = job(
        1, 1, state=JobState.RECOVERING, restarts=4, last_failure="it broke", last_ended_at=late
    )
    facts = cluster([gpus("a")], [], [again])
    (entry,) = foresee(late, facts, PLAIN)
    assert "restarts at 00:00:02 UTC on Jan 02; " in entry.text
    runs = [running("r", 1, {"a": range(8)}, seconds_left=86_400)]
    entry = queue([gpus("a")], runs, job(2, 8))["job2"]
    assert entry.text.endswith("; expected at 00:00 UTC on Jan 02")


def test_forecast_starts_waiting_job_at_running_end() -> None:
    runs = [running("r", 1, {"a": [0, 1]}, seconds_left=600)]
    entry = queue([gpus("a")], runs, job(2, 8, one_host=True))["job2"]
    assert entry.text == (
        "needs 8 GPUs on one host; a has 6 of 8 free, job r holds 2; expected at 00:10 UTC"
    )
    assert entry.earliest_start == NOW + timedelta(minutes=10)


def test_forecast_waits_for_beneficiary_of_preemption() -> None:
    found = queue([gpus("a")], [running("r", 1, {"a": range(8)})], job(2, 8, priority=9), job(3, 2))
    assert "job r is being preempted for it; expected at 00:00 UTC" in found["job2"].text
    assert found["job3"].text == (
        "needs 2 GPUs; waiting for job job2 (8 GPUs), ahead in the queue; "
        f"start time unknown: no end is known for job job2 (it has not run yet{NONE_LIKE}"
    )


def test_forecast_names_job_of_unknown_duration() -> None:
    runs = [running("r", 1, {"a": [0, 1]}, seconds_left=600)]
    found = queue([gpus("a", 4)], runs, job(2, 4), job(3, 1))
    assert found["job2"].text.endswith("expected at 00:10 UTC")
    assert found["job3"].text.endswith(
        f"start time unknown: no end is known for job job2 (it has not run yet{NONE_LIKE}"
    )


def test_forecast_uses_durations_of_similar_jobs() -> None:
    """A running job without a pace ends when its like would, and so does one that waits."""
    runs = [running("r", 1, {"a": range(4)}, name="gpt")]
    waiting = [job(2, 4, name="gpt"), job(3, 4, user="ada"), job(4, 4)]
    durations = Durations([Completed("gpt", None, 400.0), Completed("vit", "ada", 90.0)])
    facts = cluster([gpus("a", 4)], runs, waiting)
    found = {entry.job.id: entry for entry in foresee(NOW, facts, PLAIN, durations)}
    # It has run for 100 s.
    expected = [NOW + timedelta(seconds=seconds) for seconds in (300, 700, 790)]
    assert [found[each].earliest_start for each in ("job2", "job3", "job4")] == expected
    assert found["job2"].text.endswith("expected at 00:05 UTC")


def test_forecast_names_job_that_overran_its_like() -> None:
    runs = [running("r", 1, {"a": range(4)}, name="gpt")]
    facts = cluster([gpus("a", 4)], runs, [job(2, 4)])
    durations = Durations([Completed("gpt", None, 60.0)])
    (entry,) = foresee(NOW, facts, PLAIN, durations)
    assert entry.earliest_start is None
    assert entry.text.endswith(
        "no end is known for “gpt” (r) "
        "(it has run for longer than the median of 1 completed job named “gpt”)"
    )


def test_forecast_says_which_of_several_jobs_overran() -> None:
    held: dict[str, list[int]] = {"r": [0, 1], "s": [2, 3]}
    runs = [running(name, 1, {"a": indices}, name=name) for name, indices in held.items()]
    facts = cluster([gpus("a", 4)], runs, [job(2, 4)])
    (entry,) = foresee(NOW, facts, PLAIN, Durations([Completed("r", None, 60.0)]))
    assert entry.text.endswith(
        "no end is known for “r” (r), “s” (s) "
        "(“r” (r) has run for longer than the median of 1 completed job named “r”)"
    )


def test_small_quotas_name_the_smallest() -> None:
    options = ClusterOptions(quotas=Quotas(projects={"p": 3}, users={"ada": 2}))
    facts = cluster([gpus("a", 8)], [], [job(1, 4, project="p", user="ada")])
    (entry,) = foresee(NOW, facts, options)
    assert "request at most 2 workers, or ask the administrator" in entry.text
    assert "`server.quotas.users.ada`" in entry.text


def test_forecast_knows_quota_headroom_from_similar_jobs() -> None:
    options = ClusterOptions(quotas=Quotas(users={"ada": 4}))
    runs = [running("r", 1, {"a": range(4)}, user="ada")]
    facts = cluster([gpus("a")], runs, [job(2, 4, user="ada")])
    durations = Durations([Completed("vit", "ada", 400.0)])
    (entry,) = foresee(NOW, facts, options, durations)
    assert entry.text.endswith("not before 00:05 UTC")


def test_reason_names_only_relevant_holders() -> None:
    runs = [running("r", 1, {"a": range(8)}), running("s", 2, {"b": range(8)})]
    zone = {"zone": "x"}
    reason = reason_for([gpus("a", labels=zone), gpus("b")], runs, job(3, 1, selector=zone))
    assert reason.endswith(
        f"start time unknown: no end is known for job r (it reports no total steps{NONE_LIKE}"
    )


# Quotas


def test_reason_names_holders_of_full_quota() -> None:
    options = ClusterOptions(quotas=Quotas(users={"*": 5}))
    runs = [
        running("r", 1, {"a": [0, 1, 2]}, user="ada", seconds_left=300),
        running("s", 2, {"a": [3]}, user="ada"),
        running("t", 3, {"a": [4]}, user="bob"),
    ]
    found = queue([gpus("a")], runs, job(4, 2, user="ada"), job(5, 5, user="ada"), options=options)
    full = "the quota of user ada is 5 devices, of which 4 are in use: job r holds 3, job s holds 1"
    assert found["job4"].text == f"needs 2 GPUs; {full}; not before 00:05 UTC"
    assert found["job4"].earliest_start == NOW + timedelta(minutes=5)
    assert found["job5"].text == (
        f"needs 5 GPUs; {full}; start time unknown: no end is known for job s "
        f"(it reports no total steps{NONE_LIKE}"
    )
    assert found["job5"].earliest_start is None


def test_reason_uses_the_quota_freed_last() -> None:
    options = ClusterOptions(quotas=Quotas(users={"ada": 2}, projects={"vision": 2}))
    runs = [
        running("r", 1, {"a": [0, 1]}, user="ada", seconds_left=300),
        running("s", 2, {"a": [2, 3]}, project="vision", seconds_left=900),
    ]
    mine = job(3, 1, user="ada", project="vision")
    entry = foresee_new(NOW, cluster([gpus("a")], runs, []), options, mine)
    assert "the quota of project vision is 2 devices" in entry.text
    assert entry.text.endswith("not before 00:15 UTC")


def test_reason_counts_new_grants_against_quota() -> None:
    options = ClusterOptions(quotas=Quotas(users={"ada": 2}))
    found = queue([gpus("a")], [], job(1, 2, user="ada"), job(2, 1, user="ada"), options=options)
    assert found["job2"].text.endswith(
        "2 are in use: job job1 holds 2; start time unknown: no end is known for job job1 "
        f"(it has not run yet{NONE_LIKE}"
    )


# Labels

LABELLED = [
    gpus("a", labels={"gpu": "a100", "rack": "b"}),
    gpus("b", labels={"rack": "c"}),
]


@pytest.mark.parametrize(
    ("selector", "reason"),
    [
        (
            {"rack": "z"},
            "no node has rack=z (rack is b or c): change resources.selector, or label a node with "
            "`trainhall nodes label NODE rack=z`",
        ),
        (
            {"gpus": "a100", "rack": "c"},
            "no node has gpus=a100 (labels in use: gpu): change resources.selector, or label a "
            "node with `trainhall nodes label NODE gpus=a100`",
        ),
        (
            {"site": "x"},
            "no node has site=x (labels in use: gpu, rack): change resources.selector, or label "
            "a node with `trainhall nodes label NODE site=x`",
        ),
        (
            {"gpu": "a100", "rack": "c"},
            "no node has all of these labels, though each is on some: change resources.selector, "
            "or label a node with `trainhall nodes label`",
        ),
        ({"rack": "b; rm"}, "no node has rack=b; rm (rack is b or c): change resources.selector, "
         "or label a node with `trainhall nodes label NODE 'rack=b; rm'`"),
    ],
)  # fmt: skip
def test_reason_lists_labels_for_unmatched_selector(
    selector: Mapping[str, str], reason: str
) -> None:
    assert reason_for(LABELLED, [], job(1, 2, selector=selector)).endswith(f"; {reason}")


def test_reason_names_registered_host_with_labels() -> None:
    registered = node("p", 0, state=NodeState.PENDING, labels={"rack": "c"})
    reason = reason_for([gpus("a"), registered], [], job(1, 2, selector={"rack": "c"}))
    assert reason == (
        "needs 2 GPUs on hosts with rack=c; no node with this label has joined yet: "
        "node p is registered, not yet joined"
    )


def test_reason_names_registered_hosts_if_needed() -> None:
    registered = node("p", 0, state=NodeState.PENDING)
    reason = reason_for([gpus("a"), registered], [], job(1, 9))
    assert "the whole cluster has 8 GPUs (p has not joined yet): add a node" in reason


def test_reason_names_the_only_matching_host() -> None:
    runs = [running("r", 1, {"a": [0, 1, 2]})]
    reason = reason_for(LABELLED, runs, job(2, 6, selector={"rack": "b"}))
    assert reason.startswith("needs 6 GPUs on hosts with rack=b; a has 5 of 8 free, job r holds 3;")
    drained = [gpus("a", labels={"rack": "b"}, state=DRAINED), gpus("b")]
    assert reason_for(drained, [], job(2, 6, selector={"rack": "b"})) == (
        "needs 6 GPUs on hosts with rack=b; its host a has no GPU in service (a is drained): "
        "undrain it with `trainhall nodes undrain a`, or add a node with "
        "`trainhall nodes add`"
    )


# Drains and silence


def test_reason_names_undrain_command() -> None:
    reason = reason_for([gpus("a"), gpus("b", state=DRAINED)], [], job(1, 16))
    assert "(b is drained): undrain it with `trainhall nodes undrain b`, add" in reason
    two = [gpus("a"), gpus("b", state=DRAINED), gpus("c", state=DRAINING)]
    assert "undrain a node with `trainhall nodes undrain`" in reason_for(two, [], job(1, 32))


def test_reason_names_excluded_hosts() -> None:
    runs = [running("r", 1, {"a": [0, 1]}, seconds_left=600)]
    nodes = [gpus("a"), gpus("b", state=DRAINED), gpus("c", 4, state=LOST), node("d", 2)]
    assert reason_for(nodes, runs, job(2, 8, one_host=True)) == (
        "needs 8 GPUs on one host; a has 6 of 8 free, job r holds 2, node b is drained; "
        "expected at 00:10 UTC"
    )
    assert "job r holds 2, node b is drained, node c is lost;" in reason_for(nodes, runs, job(2, 8))
    many = [gpus("a"), *(gpus(f"n{i}", state=DRAINED) for i in range(5))]
    assert "n2 is drained, 2 more nodes take no work; " in reason_for(many, runs, job(2, 8))


def test_reason_ignores_devices_on_draining_host() -> None:
    runs = [running("r", 1, {"a": [0, 1]}), running("t", 2, {"b": [0, 1, 2]})]
    reason = reason_for([gpus("a"), gpus("b", state=DRAINING)], runs, job(3, 8))
    assert reason == (
        "needs 8 GPUs; 6 of 8 are free, job r holds 2, node b is draining; "
        f"start time unknown: no end is known for job r (it reports no total steps{NONE_LIKE}"
    )


# What to do


def test_reason_suggests_several_hosts() -> None:
    reason = reason_for([gpus("a"), gpus("b")], [], job(1, 16, one_host=True))
    assert reason == (
        "needs 16 GPUs on one host; the largest host has 8 GPUs: add a node with "
        "`trainhall nodes add`, remove resources.one_host, or request fewer workers"
    )
    reason = reason_for([gpus("a"), gpus("b")], [], job(1, 17, one_host=True))
    assert "leave out" not in reason


def test_reason_is_independent_of_node_order() -> None:
    for selector in ({"rack": "z"}, {"site": "x"}):
        waiting = job(1, 2, selector=selector)
        assert reason_for(LABELLED, [], waiting) == reason_for(LABELLED[::-1], [], waiting)
