"""Decisions from any state of the cluster: only listed edges, always with a reason."""

import math
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cluster.facts import NOW, attempt_facts, host_facts, job_facts
from support.cluster.facts import node_facts as node

from trainhall.cluster.lifecycle.host_report import HostReport
from trainhall.cluster.lifecycle.reasons import ReasonCode, describe
from trainhall.cluster.lifecycle.states import (
    ATTEMPT_EDGES,
    JOB_EDGES,
    AttemptState,
    JobState,
    NodeState,
)
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.reconcile.decide import decide, seconds_until_unreachable
from trainhall.cluster.reconcile.decisions import (
    Decision,
    EndAttempt,
    Explain,
    MarkRunning,
    MoveNode,
    Release,
    RemoveNode,
    StartAttempt,
    StopAttempt,
)
from trainhall.cluster.reconcile.rules import SENDING_SECONDS
from trainhall.cluster.snapshot.model import (
    AttemptFacts,
    ClusterFacts,
    GrantFacts,
    JobFacts,
    NodeFacts,
)
from trainhall.training.link.failure import Cause, Failure
from trainhall.training.link.status import Outcome

OPTIONS = ClusterOptions()
BROKE = Failure(rank=1, exit_code=3, message="rank 1 raised ValueError: bad luck")


def job(state: JobState = JobState.RUNNING, **more: object) -> JobFacts:
    return job_facts(state=state, **{"max_restarts": 1} | more)


def live(phase: str = "running", **more: object) -> HostReport:
    return replace(HostReport(phase), **more)  # type: ignore[arg-type]


def ended(outcome: Outcome, **more: object) -> HostReport:
    failure = BROKE if outcome is Outcome.FAILED else None
    base = HostReport("exited", outcome, failure, shipped=True, ended_at=NOW)
    return replace(base, **more)  # type: ignore[arg-type]


def attempt(*hosts: HostReport | None, **more: object) -> AttemptFacts:
    return attempt_facts(host_facts(*hosts), **{"reason": "asked to"} | more)


def decisions(
    the_attempt: AttemptFacts, the_job: JobFacts, *nodes: NodeFacts, now: datetime = NOW
) -> list[Decision]:
    facts = ClusterFacts(
        nodes=nodes or (node("a"), node("b")), jobs=(the_job,), attempts=(the_attempt,)
    )
    return [d for d in decide(now, facts, OPTIONS) if not isinstance(d, Explain)]


def the_end(*args: object, **more: object) -> EndAttempt:
    (decision,) = decisions(*args, **more)  # type: ignore[arg-type]
    assert isinstance(decision, EndAttempt)
    return decision


@pytest.mark.parametrize(
    ("goal", "outcome", "state", "job_end", "attempt_end"),
    [
        ("run", Outcome.COMPLETED, JobState.RUNNING, "completed", "completed"),
        ("run", Outcome.FAILED, JobState.RUNNING, "recovering", "failed"),
        ("run", Outcome.STOPPED, JobState.RUNNING, "recovering", "failed"),
        ("run", Outcome.PAUSED, JobState.RUNNING, "recovering", "failed"),
        ("pause", Outcome.PAUSED, JobState.PAUSING, "paused", "paused"),
        ("pause", Outcome.COMPLETED, JobState.PAUSING, "completed", "completed"),
        ("pause", Outcome.FAILED, JobState.PAUSING, "paused", "failed"),
        ("pause", Outcome.PAUSED, JobState.RUNNING, "recovering", "paused"),
        ("pause", Outcome.FAILED, JobState.RUNNING, "recovering", "failed"),
        ("stop", Outcome.STOPPED, JobState.CANCELLING, "cancelled", "cancelled"),
        ("stop", Outcome.FAILED, JobState.CANCELLING, "cancelled", "cancelled"),
        ("stop", Outcome.COMPLETED, JobState.CANCELLING, "cancelled", "cancelled"),
    ],
)
def test_how_an_attempt_ends(
    goal: str, outcome: Outcome, state: JobState, job_end: str, attempt_end: str
) -> None:
    end = the_end(attempt(ended(outcome), goal=goal), job(state))
    assert (end.job_path[-1], end.attempt_end) == (job_end, attempt_end)


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (ReasonCode.RESIZED, Cause.RESIZED),
        (ReasonCode.GREW, Cause.RESIZED),
        (ReasonCode.PREEMPTED, Cause.PREEMPTED),
        (ReasonCode.NODE_DRAINED, Cause.PREEMPTED),
    ],
)
def test_moved_attempt_has_a_cause(code: ReasonCode, cause: Cause) -> None:
    moved = attempt(ended(Outcome.PAUSED), goal="pause", reason_code=code.value)
    failure = the_end(moved, job()).failure
    assert failure is not None
    assert failure.cause is cause


@pytest.mark.parametrize("script", [False, True])
def test_decide_pauses_a_job_at_its_own_step(script: bool) -> None:
    pausing = job(pause_at=(20,), step=20)
    paused = attempt(ended(Outcome.PAUSED), ended(Outcome.PAUSED), script=script)
    end = the_end(paused, pausing)
    assert (end.job_path, end.attempt_end) == ((JobState.PAUSED,), AttemptState.PAUSED)
    assert (end.reason.code, end.pauses_after) == (ReasonCode.PAUSED_AT_STEP, 20)
    assert end.reason.text == "paused at step 20, as training.pause_at says"
    of_experiment = the_end(paused, replace(pausing, in_experiment=True))
    assert of_experiment.reason.code == ReasonCode.PAUSED_AT_RUNG
    # While another host's ranks still end, nothing has failed.
    assert decisions(attempt(ended(Outcome.PAUSED), live()), pausing) == []
    late = attempt(ended(Outcome.PAUSED), ended(Outcome.PAUSED, shipped=False))
    assert decisions(late, pausing) == [], "its checkpoint is not here yet"
    broken = the_end(attempt(ended(Outcome.PAUSED), ended(Outcome.FAILED)), pausing)
    assert broken.job_path == (JobState.RECOVERING,)
    drained = attempt(ended(Outcome.PAUSED), goal="pause", reason_code=ReasonCode.NODE_DRAINED)
    assert the_end(drained, pausing).job_path == (JobState.RECOVERING,)


def test_decide_regroups_no_ranks_that_pause_by_themselves() -> None:
    pausing = job(pause_at=(20,), step=20)
    hosts = (ended(Outcome.PAUSED), live(in_place=True))
    lost = attempt(*hosts, in_place=True, begun=True)
    end = the_end(lost, pausing, node("a"), node("b", state=NodeState.LOST))
    assert (end.job_path, end.attempt_end) == ((JobState.RECOVERING,), AttemptState.LOST)
    # They had left before the others knew of their next generation.
    late = attempt(*hosts, in_place=True, begun=True, generation=2, stepped=False)
    (stop,) = decisions(late, pausing)
    assert isinstance(stop, StopAttempt)
    assert stop.reason.code is ReasonCode.PEERS_NEVER_JOINED
    stopped = attempt(
        ended(Outcome.PAUSED), ended(Outcome.STOPPED), goal="stop", generation=2, stepped=False,
        reason_code=ReasonCode.PEERS_NEVER_JOINED.value,
    )  # fmt: skip
    assert the_end(stopped, pausing).job_path == (JobState.RECOVERING,)


def test_decide_accepts_any_exit_of_paused_script() -> None:
    # The second host's ranks fail since those of the first were sent SIGTERM earlier.
    hosts = (ended(Outcome.PAUSED), ended(Outcome.FAILED))
    end = the_end(attempt(*hosts, goal="pause", script=True), job(JobState.PAUSING))
    assert (end.job_path, end.failure) == ((JobState.PAUSED,), None)
    assert end.reason.code is ReasonCode.PAUSED_BY_SIGNAL
    half = attempt(live(), ended(Outcome.FAILED), goal="pause", script=True)
    assert decisions(half, job(JobState.PAUSING)) == []


@pytest.mark.parametrize("begun", [False, True])
def test_decide_reports_a_scripts_failed_save(begun: bool) -> None:
    lost = Failure(message="rank 0 failed: NotSavedError: the disk is full", node="a")
    paused = ended(Outcome.FAILED, failure=lost)
    end = the_end(attempt(paused, goal="pause", script=True, begun=begun), job(JobState.PAUSING))
    assert (end.job_path, end.failure) == ((JobState.PAUSED,), lost)
    how = "resumes from its last checkpoint" if begun else "starts again once resumed"
    assert end.reason.text == f"{lost.message} while it was being paused; it {how}"
    well = attempt(ended(Outcome.PAUSED), goal="pause", script=True, begun=True)
    assert the_end(well, job(JobState.PAUSING)).failure is None


def test_the_first_failure_of_several_hosts_counts() -> None:
    later = ended(Outcome.FAILED, ended_at=NOW + timedelta(seconds=1))
    first = ended(Outcome.FAILED, failure=Failure(signal=9, message="killed"))
    end = the_end(attempt(later, first), job())
    assert end.reason.text == "killed (SIGKILL) (node b); restart 1 of 1"
    assert end.failure is not None
    assert end.failure.signal == 9


def test_decide_waits_for_uploads_before_the_end() -> None:
    for outcome in (Outcome.COMPLETED, Outcome.FAILED, Outcome.PAUSED):
        unshipped = attempt(ended(outcome, shipped=False), goal="run")
        assert decisions(unshipped, job()) == []
    late = NOW + timedelta(seconds=OPTIONS.shipping_patience_seconds)
    assert decisions(attempt(ended(Outcome.COMPLETED, shipped=False)), job(), now=late) == []
    assert decisions(attempt(ended(Outcome.FAILED, shipped=False)), job(), now=late)
    stopped = attempt(ended(Outcome.STOPPED, shipped=False), goal="stop")
    assert decisions(stopped, job(JobState.CANCELLING))


@pytest.mark.parametrize("known", [None, live("preparing"), live()])
def test_decide_stops_undeliverable_attempt_for_good(known: HostReport | None) -> None:
    unknown = attempt(known, live(), not_understood="training.step: unknown key")
    (stop,) = decisions(unknown, job(), node("a"), node("b"))
    assert isinstance(stop, StopAttempt)
    assert stop.failure is not None
    why = "this version does not understand its spec: training.step: unknown key"
    assert (stop.goal, stop.failure.message, stop.failure.final) == ("stop", why, True)
    # It was asked to stop, whether or not that was decided before its hosts ended.
    stopped = replace(unknown, hosts=attempt(ended(Outcome.STOPPED)).hosts)
    for each in (stopped, replace(stopped, goal="stop", failure=stop.failure)):
        (end,) = decisions(each, job(), node())
        assert isinstance(end, EndAttempt)
        assert (end.job_path, end.reason.text) == ((JobState.FAILED,), why)
    cancelled = replace(unknown, goal="stop")
    assert decisions(cancelled, job(JobState.CANCELLING), node("a"), node("b")) == []
    over = replace(stopped, goal="stop")
    (end,) = decisions(over, job(JobState.CANCELLING), node())
    assert isinstance(end, EndAttempt)
    assert end.job_path == (JobState.CANCELLED,)


def test_decide_explains_waiting_for_uploads() -> None:
    def explained(*hosts: HostReport, later: float, **more: Any) -> list[Decision]:
        facts = ClusterFacts(
            nodes=(node("a"), node("b")), jobs=(job(**more),), attempts=(attempt(*hosts),)
        )
        return decide(NOW + timedelta(seconds=later), facts, OPTIONS)

    sends, sent = ended(Outcome.COMPLETED, shipped=False), ended(Outcome.COMPLETED)
    assert explained(sends, sent, later=SENDING_SECONDS - 0.1) == []
    (explained_once,) = explained(sends, sent, later=SENDING_SECONDS)
    reason = "its ranks have ended; node a still uploads what they saved"
    assert isinstance(explained_once, Explain)
    assert (explained_once.state, explained_once.reason.text) == (JobState.RUNNING, reason)
    known = {"reason": reason, "reason_code": "uploading"}
    assert explained(sends, sent, later=600.0, **known) == []
    (both,) = explained(sends, sends, later=SENDING_SECONDS, reason=reason)
    assert both.reason.text == "its ranks have ended; nodes a, b still upload what they saved"
    assert explained(sends, live(), later=600.0) == []
    (pausing,) = explained(sends, later=600.0, state=JobState.PAUSING)
    assert isinstance(pausing, Explain)
    assert (pausing.state, pausing.reason.text) == (JobState.PAUSING, reason)


def test_restarts_are_counted_since_the_last_new_step() -> None:
    failed = attempt(ended(Outcome.FAILED))
    assert the_end(failed, job(max_restarts=0)).job_path == (JobState.FAILED,)
    assert the_end(failed, job(restarts=1)).job_path == (JobState.FAILED,)
    progressed = the_end(failed, job(restarts=1, step=5))
    assert progressed.job_path == (JobState.RECOVERING,)
    assert (progressed.restarts, progressed.restarts_step) == (1, 5)
    back = the_end(failed, job(restarts=1, step=5, restarts_step=9, max_restarts=5))
    assert (back.restarts, back.restarts_step) == (2, 9)


def test_decide_ends_job_after_repeated_failure() -> None:
    failed = attempt(ended(Outcome.FAILED))
    again = job(restarts=1, max_restarts=3, failed_before=BROKE)
    end = the_end(failed, again)
    assert end.job_path == (JobState.FAILED,)
    why = "rank 1 raised ValueError: bad luck (exit code 3)"
    assert (
        end.reason.text
        == f"{why}; not retried: it failed twice with the same error before its first step"
    )
    later = the_end(failed, replace(again, step=9, restarts_step=9))
    assert (
        later.reason.text
        == f"{why}; not retried: it failed twice with the same error before a new step"
    )


def test_silence() -> None:
    (suspect,) = decide(NOW, ClusterFacts(nodes=(node(seconds_since_heartbeat=15.0),)), OPTIONS)
    assert isinstance(suspect, MoveNode)
    assert suspect.end is NodeState.SUSPECT
    (lost,) = decide(NOW, ClusterFacts(nodes=(node(seconds_since_heartbeat=90.0),)), OPTIONS)
    assert isinstance(lost, MoveNode)
    assert lost.end is NodeState.LOST
    assert decide(NOW, ClusterFacts(nodes=(node(seconds_since_heartbeat=14.9),)), OPTIONS) == []


def test_decide_returns_time_of_next_silence_limit() -> None:
    def until(*nodes: NodeFacts, attempts: tuple[AttemptFacts, ...] = ()) -> float:
        return seconds_until_unreachable(ClusterFacts(nodes=nodes, attempts=attempts), OPTIONS)

    assert until() == math.inf
    assert until(node(seconds_since_heartbeat=10.0)) == 5.0
    assert until(node(seconds_since_heartbeat=10.0), node("b", seconds_since_heartbeat=89.0)) == 1.0
    assert until(node(seconds_since_heartbeat=20.0, state=NodeState.SUSPECT)) == 70.0
    assert until(node(seconds_since_heartbeat=100.0, state=NodeState.LOST)) == math.inf
    promised = attempt(live(), isolation_seconds=120.0)
    assert until(node(seconds_since_heartbeat=20.0), attempts=(promised,)) == 100.0


@pytest.mark.parametrize(
    ("state", "end"),
    [
        (JobState.STARTING, JobState.RECOVERING),
        (JobState.RUNNING, JobState.RECOVERING),
        (JobState.PAUSING, JobState.PAUSED),
        (JobState.CANCELLING, JobState.CANCELLED),
    ],
)
def test_a_lost_host_loses_its_attempt(state: JobState, end: JobState) -> None:
    running = attempt(live(), live())
    for nodes in ((node("a"), node("b", state=NodeState.LOST)), (node("a"),)):
        lost = the_end(running, job(state), *nodes)
        assert (lost.attempt_end, lost.job_path) == (AttemptState.LOST, (end,))
        assert lost.restarts is None, "a lost node is not the job's fault"
        assert lost.lost_nodes == ("b",)


def test_decide_accepts_loss_of_an_ended_host() -> None:
    done = attempt(ended(Outcome.COMPLETED, shipped=False))
    assert the_end(done, job(), node("a", state=NodeState.LOST)).job_path == (JobState.COMPLETED,)


def test_decide_accepts_removal_of_an_ended_host() -> None:
    half = attempt(ended(Outcome.COMPLETED), live())
    assert decisions(half, job(), node("b")) == []


def by_agent(outcome: Outcome, **more: object) -> HostReport:
    return ended(outcome, agent_stopped=True, **more)


@pytest.mark.parametrize(
    ("outcome", "script", "attempt_end", "what"),
    [
        (Outcome.PAUSED, False, "paused", "; the ranks saved first"),
        (Outcome.PAUSED, True, "paused", "; the ranks were stopped first"),
        (Outcome.STOPPED, False, "failed", " before the ranks had saved"),
        (Outcome.FAILED, False, "failed", f", and {BROKE.message} (exit code 3)"),
    ],
)
def test_an_agent_that_was_stopped_costs_no_restart(
    outcome: Outcome, script: bool, attempt_end: str, what: str
) -> None:
    why = f"the agent on a was stopped{what}"
    end = the_end(attempt(by_agent(outcome), script=script), job(restarts=1, max_restarts=1))
    assert (end.attempt_end, end.job_path) == (attempt_end, (JobState.RECOVERING,))
    assert end.attempt_reason.text == why
    assert end.reason.text == f"{why}; will be rescheduled (not counted as a restart)"
    assert (end.restarts, end.restarts_step) == (None, None)


def test_decide_reports_a_scripts_save() -> None:
    script = attempt(by_agent(Outcome.PAUSED), script=True, begun=True)
    assert (
        the_end(script, job()).attempt_reason.text
        == "the agent on a was stopped; the ranks saved first"
    )


def test_decide_reports_pause_cut_by_stopped_agent() -> None:
    cut = attempt(by_agent(Outcome.STOPPED), goal="pause")
    end = the_end(cut, job(JobState.PAUSING))
    assert end.job_path == (JobState.PAUSED,)
    assert end.reason.text == "paused; the agent on a was stopped before the ranks had saved"


def test_decide_counts_failure_before_agent_stopped() -> None:
    failing = attempt(by_agent(Outcome.STOPPED), goal="stop", failure=BROKE)
    assert the_end(failing, job()).restarts == 1


@pytest.mark.parametrize(
    ("outcome", "goal"), [(Outcome.PAUSED, "pause"), (Outcome.STOPPED, "stop")]
)
def test_the_other_hosts_end_with_a_stopped_agent(outcome: Outcome, goal: str) -> None:
    half = attempt(by_agent(outcome), live())
    (decision,) = decisions(half, job())
    assert isinstance(decision, StopAttempt)
    assert (decision.goal, decision.failure) == (goal, None)
    assert "the agent on a was stopped" in decision.reason.text
    # Its peers fail because its ranks are gone.
    other = ended(Outcome.FAILED, ended_at=NOW - timedelta(seconds=1))
    assert the_end(attempt(by_agent(outcome), other, goal=goal), job()).restarts is None


def test_decide_ends_ranks_of_unstarted_host() -> None:
    paused = attempt(
        live("starting"), ended(Outcome.PAUSED), state=AttemptState.STOPPING, goal="pause"
    )
    (stop,) = decisions(paused, job(JobState.PAUSING), node("a"), node("b"))
    assert isinstance(stop, StopAttempt)
    assert stop.goal == "stop"
    assert "before the ranks of all hosts had joined" in stop.reason.text
    for saves in (replace(paused, begun=True), replace(paused, script=True)):
        assert decisions(saves, job(JobState.PAUSING), node("a"), node("b")) == []
    # Ranks that went on to another generation wait there for those of a host that joins.
    joins = replace(paused, begun=True, stepped=False)
    assert decisions(joins, job(JobState.PAUSING), node("a"), node("b")) == [stop]


def test_decide_completes_ranks_joining_completed_job() -> None:
    """A host that was cut off completed an earlier generation; that ends the present one."""
    joined = attempt(ended(Outcome.COMPLETED), live(), generation=2, begun=True, stepped=False)
    (stop,) = decisions(joined, job())
    assert isinstance(stop, StopAttempt)
    assert (stop.goal, stop.failure) == ("stop", None)
    assert "completed before the ranks of all hosts had joined" in stop.reason.text
    # Otherwise the others have the last step too, and end by themselves.
    for whole in (replace(joined, stepped=True), replace(joined, generation=1)):
        assert decisions(whole, job()) == []
    assert decisions(replace(joined, script=True), job()) == []
    both = attempt(ended(Outcome.COMPLETED), ended(Outcome.STOPPED))
    over = replace(joined, hosts=both.hosts, goal="stop")
    assert the_end(over, job()).job_path == (JobState.COMPLETED,)
    assert the_end(replace(over, stepped=True), job()).job_path == (JobState.RECOVERING,)


@pytest.mark.parametrize(("more", "how"), [
    ({}, "it saves and moves"),
    ({"script": True, "begun": True}, "it saves and moves"),
    ({"script": True}, "its script gets SIGTERM and starts again elsewhere"),
])  # fmt: skip
def test_decide_reports_whether_drained_jobs_save(more: dict[str, Any], how: str) -> None:
    of = replace(attempt(live(), live()), **more)
    draining = node("a", state=NodeState.DRAINING)
    (stop,) = decisions(of, job(JobState.RUNNING), draining, node("b"))
    assert isinstance(stop, StopAttempt)
    assert (stop.goal, stop.reason.text) == ("pause", f"node a is being drained: {how}")


def test_decide_delays_drain_during_regroup() -> None:
    draining = node("a", state=NodeState.DRAINING)
    meets = attempt(live(), live(), in_place=True, begun=True, stepped=False)
    assert decisions(meets, job(JobState.RUNNING), draining, node("b")) == []
    (stop,) = decisions(replace(meets, stepped=True), job(JobState.RUNNING), draining, node("b"))
    assert isinstance(stop, StopAttempt)
    over = attempt(
        ended(Outcome.STOPPED), ended(Outcome.PAUSED), state=AttemptState.STOPPING, goal="stop"
    )
    end = the_end(over, job(JobState.PAUSING), node("a"), node("b"))
    assert end.job_path == (JobState.PAUSED,)


def started(*hosts: HostReport | None, **more: object) -> AttemptFacts:
    base = attempt(*hosts, state=AttemptState.STARTING, started_at=NOW, **more)
    ranked = tuple(replace(h, ranks=(2 * i, 2 * i + 1)) for i, h in enumerate(base.hosts))
    return replace(base, hosts=ranked)


LATE = NOW + timedelta(seconds=OPTIONS.start_limit_seconds)


@pytest.mark.parametrize(
    ("hosts", "more", "why"),
    [
        ((live(), live("preparing")), {}, "ranks 2, 3 on node b: still fetching a checkpoint or "
         "the code, or waiting for the first host"),
        ((live("starting"), None), {}, "ranks 0, 1 on node a: starting; ranks 2, 3 on node b: its "
         "agent has not started them"),
        ((live(), live("preparing")), {"script": True}, "ranks 2, 3 on node b: still fetching a "
         "checkpoint or the code, or waiting for the first host"),
        ((live(), live()), {"state": AttemptState.RUNNING}, "all ranks run, but none "
         "reported that training began"),
    ],
)  # fmt: skip
def test_decide_names_hosts_missing_at_start(
    hosts: tuple[HostReport | None, ...], more: dict[str, object], why: str
) -> None:
    late = replace(started(*hosts), **more)  # type: ignore[arg-type]
    (decision,) = decisions(late, job(JobState.STARTING), now=LATE)
    assert isinstance(decision, StopAttempt)
    assert decision.goal == "stop"
    assert decision.failure is not None
    limit = f"it did not start within {OPTIONS.start_limit_seconds:g} s: "
    assert decision.failure.message == limit + why
    over = replace(late, hosts=(replace(late.hosts[0], report=ended(Outcome.STOPPED)),),
                   failure=decision.failure, goal="stop")  # fmt: skip
    assert the_end(over, job(JobState.STARTING), now=LATE).restarts == 1


def test_decide_waits_for_a_slow_start() -> None:
    preparing = started(live(), live("preparing"))
    assert decisions(preparing, job(JobState.STARTING), now=LATE - timedelta(seconds=1)) == []
    stalled = ClusterFacts(
        nodes=(node("a"), node("b")),
        jobs=(job(JobState.STARTING),),
        attempts=(preparing,),
        listening_seconds=5.0,
    )
    assert decide(LATE, stalled, OPTIONS) == []
    for runs in ({"begun": True}, {"script": True}):
        running = started(live(), live(), **runs)
        (decision,) = decisions(running, job(JobState.STARTING), now=LATE)
        assert isinstance(decision, MarkRunning)


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (Failure(message="it broke", exit_code=3), "it broke (exit code 3)"),
        (Failure(message="exited with exit code 3", exit_code=3), "exited with exit code 3"),
        (Failure(message="killed", signal=9), "killed (SIGKILL)"),
        (Failure(message="ended by SIGKILL", signal=9), "ended by SIGKILL"),
        (Failure(message="odd", signal=99), "odd (signal 99)"),
        (Failure(message=" "), "failed without a message"),
    ],
)
def test_failures_in_one_line(failure: Failure, text: str) -> None:
    assert describe(failure) == text


@st.composite
def clusters(draw: st.DrawFn) -> ClusterFacts:
    nodes = tuple(
        node(
            name,
            state=draw(st.sampled_from(NodeState)),
            removing=draw(st.booleans()),
            seconds_since_heartbeat=draw(st.sampled_from([0.0, 20.0, 100.0])),
        )
        for name in draw(st.sampled_from(["", "a", "ab"]))
    )
    hosts = [
        draw(
            st.none()
            | st.builds(live, st.sampled_from(["preparing", "starting", "running", "gone"]))
            | st.builds(
                ended,
                st.sampled_from(Outcome),
                shipped=st.booleans(),
                agent_stopped=st.booleans(),
            )
        )
        for _ in range(draw(st.integers(1, 2)))
    ]
    waiting = draw(st.booleans())
    state = draw(
        st.sampled_from([JobState.QUEUED, JobState.RECOVERING])
        if waiting
        else st.sampled_from(
            [JobState.STARTING, JobState.RUNNING, JobState.PAUSING, JobState.CANCELLING]
        )
    )
    goal = {JobState.PAUSING: "pause", JobState.CANCELLING: "stop"}.get(state)
    goal = goal or draw(st.sampled_from(["run", "pause"]))
    attempt_state = draw(st.sampled_from([AttemptState.STARTING, AttemptState.RUNNING]))
    if goal != "run":
        attempt_state = AttemptState.STOPPING
    if waiting:
        attempt_state = draw(st.sampled_from([AttemptState.LOST, AttemptState.FAILED]))
    the_job = job(
        state,
        restarts=draw(st.integers(0, 2)),
        step=draw(st.integers(0, 2)),
        restarts_step=draw(st.integers(0, 2)),
        last_ended_at=NOW if state is JobState.RECOVERING else None,
    )
    started_at = NOW - timedelta(seconds=draw(st.sampled_from([0.0, 1e6])))
    the_attempt = attempt(*hosts, goal=goal, state=attempt_state, started_at=started_at)
    grants = tuple(GrantFacts(h.node_id, 0, "job", 1) for h in the_attempt.hosts)
    return ClusterFacts(
        nodes=nodes,
        jobs=(the_job,),
        attempts=(the_attempt,),
        grants=tuple(g for g in grants if g.node_id in {n.id for n in nodes}),
    )


@given(clusters())
def test_only_listed_edges_and_always_a_reason(facts: ClusterFacts) -> None:
    (the_job,), (the_attempt,) = facts.jobs, facts.attempts
    made = decide(NOW, facts, OPTIONS)
    assert sum(isinstance(d, EndAttempt | StopAttempt | MarkRunning) for d in made) <= 1
    for decision in made:
        assert decision.reason.text
        match decision:
            case EndAttempt():
                for edge in pairwise((decision.job_start, *decision.job_path)):
                    assert edge in JOB_EDGES
                assert decision.job_start is the_job.state
                assert (decision.attempt_start, decision.attempt_end) in ATTEMPT_EDGES
            case MarkRunning():
                assert the_attempt.state is AttemptState.STARTING
                assert the_attempt.goal == "run"
            case StopAttempt():
                assert the_attempt.goal != decision.goal
            case StartAttempt():
                assert (the_job.state, JobState.STARTING) in JOB_EDGES
                assert decision.entry.placed
                for placed in decision.entry.placed:
                    (where,) = [n for n in facts.nodes if n.id == placed.node_id]
                    assert where.state is NodeState.READY
                    assert not where.removing
            case Release() | RemoveNode() | MoveNode() | Explain():
                pass
    if the_job.state in (JobState.QUEUED, JobState.RECOVERING):
        spoken = [d for d in made if isinstance(d, StartAttempt | Explain)]
        assert spoken, "a waiting job without a word"
