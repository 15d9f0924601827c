"""The rules that decide what becomes of an active attempt: the first whose condition holds decides.

The table is the decision and its documentation (`scripts/generate_docs.py` writes it into
docs/failures.md). A rule that decides nothing keeps later ones from being asked.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from trainhall.cluster.durations import format_duration
from trainhall.cluster.lifecycle.reasons import (
    SIGNALLED,
    Reason,
    ReasonCode,
    clock_time,
    describe,
    running,
)
from trainhall.cluster.lifecycle.states import AttemptState, JobState
from trainhall.cluster.reconcile.decisions import (
    Decision,
    EndAttempt,
    Explain,
    KeepPlan,
    MarkRunning,
    StopAttempt,
)
from trainhall.cluster.reconcile.restart_policy import AfterFailure, node_lost
from trainhall.cluster.reconcile.situation import Situation
from trainhall.training.link.failure import Cause, Failure

SENDING_SECONDS = 5.0
"""After the last rank's end: most hosts have sent everything by then."""


@dataclass(frozen=True)
class Rule:
    name: str
    condition: str
    decision: str
    holds: Callable[[Situation], object]
    decide: Callable[[Situation], Decision | None]


def _stop(
    s: Situation, code: ReasonCode, failure: Failure | None = None, **params: Any
) -> StopAttempt:
    if failure is not None:
        params["failure"] = s.describe(failure)
    return StopAttempt(s.attempt.token, "stop", Reason.of(code, **params), failure)


def _stop_after_failed_rank(s: Situation) -> StopAttempt:
    # Its host waits for an answer: elsewhere ranks end on their own, here they must be ended.
    failure = s.losses.ranks[0][1].failure
    reason = Reason.of(
        ReasonCode.RANK_FAILED, failure=describe(failure), others="its other ranks stop"
    )
    return StopAttempt(s.attempt.token, "stop", reason, failure)


def _stop_after_failure(s: Situation) -> StopAttempt:
    others = "its ranks stop" if s.attempt.not_understood else "the other hosts stop"
    return _stop(s, ReasonCode.RANK_FAILED, s.failure, others=others)


def _follow_agents(s: Situation) -> StopAttempt:
    reason = Reason.of(ReasonCode.AGENT_STOPPED, agents=s.why_agents_stopped)
    return StopAttempt(s.attempt.token, s.goal_of_stopped_agents, reason)


def _leave_drained(s: Situation) -> StopAttempt:
    how = "it saves and moves" if s.attempt.saves else f"{SIGNALLED} elsewhere"
    reason = Reason.of(ReasonCode.NODE_DRAINED, node=s.drained[0], how=how)
    return StopAttempt(s.attempt.token, "pause", reason)


def _keep_plan(s: Situation) -> KeepPlan:
    if s.plan is None:
        refusal = Reason.of(ReasonCode.STRATEGY_NOT_PREDICTED, why=s.plan_refusal)
        return KeepPlan(s.attempt.token, None, refusal)
    is_named = s.plan.is_named
    code = ReasonCode.STRATEGY_PREDICTED if is_named else ReasonCode.STRATEGY_PLANNED
    return KeepPlan(s.attempt.token, s.plan, Reason.of(code, why=s.plan.reason))


def _mark_running(s: Situation) -> MarkRunning:
    hosts = [host.node_name for host in s.attempt.hosts]
    return MarkRunning(s.attempt.token, s.job.state, running(s.job.workers, hosts))


def _explain_awaited(s: Situation) -> Explain | None:
    idle = max(s.spare.nodes[host.node_id].seconds_since_heartbeat for host in s.awaited)
    lost_at = s.now + timedelta(seconds=max(0.0, s.lost_after_seconds - idle))
    names = " or ".join(f"node {host.node_name}" for host in s.awaited)
    time = clock_time(lost_at, s.now, seconds=True)
    return _explain(s, Reason.of(ReasonCode.AWAITING_NODE, nodes=names, time=time))


def _explain_uploads(s: Situation) -> Explain | None:
    """Explain why a job without processes has not ended: slow link, or full disk here."""
    reports = [host.report for host in s.attempt.hosts]
    ends = [report.ended_at for report in reports if report and report.ended_at]
    if s.now - max(ends, default=s.now) < timedelta(seconds=SENDING_SECONDS):
        return None
    names = ", ".join(host.node_name for host in s.uploading)
    one = len(s.uploading) == 1
    who = f"node {names} still uploads" if one else f"nodes {names} still upload"
    return _explain(s, Reason.of(ReasonCode.UPLOADING, who=who))


def _explain(s: Situation, reason: Reason) -> Explain | None:
    if reason.is_stored(s.job.reason_code, s.job.reason):
        return None
    return Explain(s.job.id, s.job.state, reason)


def _end(
    s: Situation,
    attempt_end: AttemptState,
    job_end: JobState,
    reason: Reason,
    failure: Failure | None = None,
    *,
    attempt_reason: Reason | None = None,
    after: AfterFailure | None = None,
    lost_nodes: tuple[str, ...] = (),
) -> EndAttempt:
    path: tuple[JobState, ...] = (job_end,)
    if s.job.state is JobState.STARTING and job_end is JobState.COMPLETED:
        path = (JobState.RUNNING, JobState.COMPLETED)
    if attempt_reason is None:
        failed = failure and Reason.of(ReasonCode.FAILED, failure=s.describe(failure))
        attempt_reason = failed or reason
    restarts = after.restarts if after is not None else None
    return EndAttempt(
        token=s.attempt.token,
        attempt_start=s.attempt.state,
        attempt_end=attempt_end,
        attempt_reason=attempt_reason,
        job_start=s.job.state,
        job_path=path,
        reason=reason,
        failure=failure,
        restarts=0 if attempt_end is AttemptState.COMPLETED else restarts,
        restarts_step=after.step if after is not None else None,
        lost_nodes=lost_nodes,
    )


def _end_lost(s: Situation) -> EndAttempt:
    name, node = s.lost[0].node_name, s.spare.nodes.get(s.lost[0].node_id)
    failure = node_lost(s.now, name, node, s.job.step)
    why = failure.message
    end, code = {
        JobState.PAUSING: (JobState.PAUSED, ReasonCode.PAUSED_AFTER_NODE_LOST),
        JobState.CANCELLING: (JobState.CANCELLED, ReasonCode.CANCELLED_AFTER_NODE_LOST),
    }.get(s.job.state, (JobState.RECOVERING, ReasonCode.REPLACED))
    return _end(
        s, AttemptState.LOST, end, Reason.of(code, why=why), failure,
        attempt_reason=Reason.of(ReasonCode.NODE_LOST, why=why),
        lost_nodes=tuple(host.node_id for host in s.lost),
    )  # fmt: skip


def _end_with_agents(s: Situation) -> EndAttempt:
    why = s.why_agents_stopped
    end, reason = JobState.RECOVERING, Reason.of(ReasonCode.RESCHEDULED, failure=why)
    if s.job.state is JobState.PAUSING:
        end, reason = JobState.PAUSED, Reason.of(ReasonCode.PAUSED_WITH_AGENT, why=why)
    if s.goal_of_stopped_agents == "pause":
        saved = Reason.of(ReasonCode.SAVED_WITH_AGENT, why=why)
        return _end(s, AttemptState.PAUSED, end, reason, attempt_reason=saved)
    failure = Failure(message=why, cause=Cause.PREEMPTED, step=s.job.step or None)
    return _end(s, AttemptState.FAILED, end, reason, failure)


def _end_moved(s: Situation) -> EndAttempt:
    why = Reason.stored(s.attempt.reason_code, s.attempt.reason)
    resized = why.code in {ReasonCode.RESIZED, ReasonCode.GREW}
    cause = Cause.RESIZED if resized else Cause.PREEMPTED
    moved = Failure(message=why.text, cause=cause, step=s.job.step or None)
    return _end(s, AttemptState.PAUSED, JobState.RECOVERING, why, moved, attempt_reason=why)


def _asked(s: Situation, code: ReasonCode, *, with_experiment: ReasonCode) -> Reason:
    """Return who asked for an end: a user of its experiment, which the job's reason names, or one
    of this job alone."""
    if s.job.reason_code == with_experiment:
        return Reason.stored(s.job.reason_code, s.job.reason, user=s.job.asked_by)
    return Reason.of(code, user=s.job.asked_by)


def _fail(s: Situation, job_end: JobState, code: ReasonCode, **params: Any) -> EndAttempt:
    """End an attempt with its failure.

    Args:
        params: of the job's reason, beside the failure.
    """
    assert s.failure is not None
    reason = Reason.of(code, failure=s.describe(s.failure), **params)
    after = s.after if job_end is not JobState.PAUSED else None
    return _end(s, AttemptState.FAILED, job_end, reason, s.failure, after=after)


def _pause_by_itself(s: Situation) -> EndAttempt:
    at_rung = s.job.in_experiment
    code = ReasonCode.PAUSED_AT_RUNG if at_rung else ReasonCode.PAUSED_AT_STEP
    reason = Reason.of(code, step=s.job.step)
    end = _end(s, AttemptState.PAUSED, JobState.PAUSED, reason)
    return replace(end, pauses_after=s.job.step)


def _fail_while_pausing(s: Situation) -> EndAttempt:
    how = "resumes from its last checkpoint" if s.attempt.saves else "starts again once resumed"
    return _fail(s, JobState.PAUSED, ReasonCode.FAILED_WHILE_PAUSING, how=how)


def _fail_repeatedly(s: Situation) -> EndAttempt:
    step = "a new step" if s.after.step else "its first step"
    return _fail(s, JobState.FAILED, ReasonCode.FAILED_REPEATEDLY, step=step)


def _fail_without_restarts(s: Situation) -> EndAttempt:
    most = s.job.max_restarts
    limit = f"max_restarts is {most}{', each without a new step' if most > 1 else ''}"
    return _fail(s, JobState.FAILED, ReasonCode.RESTARTS_EXHAUSTED, limit=limit)


AT_ANY_TIME = (
    Rule(
        "replace ranks",
        "ranks failed [in place](elastic.md) or leave a lost or drained node, and one that has the "
        "state stays",
        "regroups at the largest possible size",
        lambda s: s.regrouping,
        lambda s: s.regrouping,
    ),
    Rule(
        "stop after a failed rank",
        "a rank failed in place, and the others cannot continue",
        "they stop",
        lambda s: s.losses.ranks and not s.asked_to_stop,
        _stop_after_failed_rank,
    ),
    Rule(
        "resize",
        "a user resized the job, and devices are free",
        "regroups, or saves and is placed again",
        lambda s: s.resizing,
        lambda s: s.resizing,
    ),
    Rule(
        "grow",
        "an elastic job kept its size for a while, and no waiting job could use the devices",
        "regroups, or saves and is placed again",
        lambda s: s.growing,
        lambda s: s.growing,
    ),
    Rule(
        "end isolated ranks",
        "a node is lost, and ranks run on others (`on_isolation: stop`)",
        "these stop first",
        lambda s: s.others_end_first and not s.asked_to_stop,
        lambda s: _stop(s, ReasonCode.ISOLATED_RANKS_END, node=s.lost[0].node_name),
    ),
    Rule(
        "await isolated ranks",
        "isolated ranks may still run (`on_isolation: stop`)",
        "waits",
        lambda s: s.others_end_first or s.may_run_unseen,
        lambda s: None,
    ),
    Rule(
        "replace lost ranks",
        "a node with ranks is lost or was removed",
        "is lost; the job recovers, or is paused or cancelled as asked",
        lambda s: s.lost,
        _end_lost,
    ),
)
WHILE_RANKS_RUN = (
    Rule(
        "stop after a failure",
        "a host reported a failure",
        "the other hosts stop",
        lambda s: s.failure and not s.asked_to_stop,
        _stop_after_failure,
    ),
    Rule(
        "follow a stopped agent",
        "an agent was stopped, or its ranks ended in isolation",
        "the other hosts pause if its ranks saved, else stop",
        lambda s: (
            s.stopped_agents and not s.asked_to_stop and s.goal_of_stopped_agents != s.attempt.goal
        ),
        _follow_agents,
    ),
    Rule(
        "stop after an early pause",
        "a host paused before all ranks had joined",
        "the other hosts stop",
        lambda s: s.paused_before_joining and not s.asked_to_stop,
        lambda s: _stop(s, ReasonCode.PEERS_NEVER_JOINED, outcome="paused"),
    ),
    Rule(
        "stop after an early end",
        "a host completed before all ranks had joined",
        "the other hosts stop",
        lambda s: s.completed_before and not s.asked_to_stop,
        lambda s: _stop(s, ReasonCode.PEERS_NEVER_JOINED, outcome="completed"),
    ),
    Rule(
        "stop a hang",
        "no host's ranks take a step",
        "stops; the failure names the rank behind",
        lambda s: s.hang and not s.asked_to_stop,
        lambda s: _stop(s, ReasonCode.HANG, s.hang),
    ),
    Rule(
        "stop a late start",
        "training did not begin in time",
        "stops; the failure names the missing ranks",
        lambda s: s.late_start and s.attempt.goal == "run",
        lambda s: _stop(s, ReasonCode.START_TIMEOUT, s.late_start),
    ),
    Rule(
        "end when idle",
        "an [interactive job](inside.md#interactive-jobs) had no session for its `idle_seconds`",
        "stops",
        lambda s: s.is_idle and s.attempt.goal == "run" and s.job.is_wanted,
        lambda s: _stop(s, ReasonCode.IDLE, time=format_duration(s.job.idle_seconds or 0.0)),
    ),
    Rule(
        "leave a drained node",
        "a node is drained or removed, and a step was taken",
        "saves (without the SDK: SIGTERM) and moves",
        lambda s: s.drained and s.attempt.stepped and s.attempt.goal == "run" and s.job.is_wanted,
        _leave_drained,
    ),
    Rule(
        "keep the plan",
        "its first host has planned the strategy, or predicted it",
        "all hosts use this plan",
        lambda s: (
            (s.plan or s.plan_refusal is not None) and s.attempt.state is AttemptState.STARTING
        ),
        _keep_plan,
    ),
    Rule(
        "await a suspect node",
        "it ends, and its last ranks are on a suspect node",
        "waits until the node reports again or is lost",
        lambda s: s.awaited,
        _explain_awaited,
    ),
    Rule(
        "run",
        "all hosts run their ranks",
        "is running",
        lambda s: s.starts and not s.not_running,
        _mark_running,
    ),
    Rule(
        "prepare",
        "a host makes the job's [environment](environments.md) or [data sets](data.md) ready",
        "waits, and says what for",
        lambda s: s.preparing,
        lambda s: _explain(s, s.preparing) if s.preparing else None,
    ),
    Rule(
        "await a resize",
        "a user resized the job, and it cannot have that size yet",
        "keeps its size",
        lambda s: s.why_not_resized,
        lambda s: _explain(s, s.why_not_resized) if s.why_not_resized else None,
    ),
)
ONCE_ALL_ENDED = (
    Rule(
        "have run",
        "it is still starting, and nothing failed",
        "is running, until the next pass",
        lambda s: s.starts and s.attempt.goal == "run",
        _mark_running,
    ),
    Rule(
        "await uploads",
        "an agent still uploads checkpoints",
        "waits (after a failure, only for a while)",
        lambda s: s.uploading,
        _explain_uploads,
    ),
    Rule(
        "cancel",
        "a user cancels the job",
        "is cancelled",
        lambda s: s.job.state is JobState.CANCELLING,
        lambda s: _end(
            s,
            AttemptState.CANCELLED,
            JobState.CANCELLED,
            _asked(s, ReasonCode.CANCELLED, with_experiment=ReasonCode.EXPERIMENT_CANCELLED),
        ),
    ),
    Rule(
        "complete when idle",
        "an interactive job was stopped because it was idle",
        "is completed",
        lambda s: s.ended_idle,
        lambda s: _end(
            s,
            AttemptState.COMPLETED,
            JobState.COMPLETED,
            Reason.stored(s.attempt.reason_code, s.attempt.reason),
        ),
    ),
    Rule(
        "complete",
        "all hosts completed, or one before the others joined",
        "is completed",
        lambda s: s.completed or (s.completed_before and not s.failure),
        lambda s: _end(
            s, AttemptState.COMPLETED, JobState.COMPLETED, Reason.of(ReasonCode.COMPLETED)
        ),
    ),
    Rule(
        "end with an agent",
        "an agent was stopped, or its ranks ended in isolation",
        "recovers, no restart counted, or is paused as asked",
        lambda s: s.stopped_agents,
        _end_with_agents,
    ),
    Rule(
        "fail while pausing",
        "a user pauses the job, and the attempt failed",
        "the job is paused",
        lambda s: s.job.state is JobState.PAUSING and s.failure,
        _fail_while_pausing,
    ),
    Rule(
        "pause",
        "a user pauses the job",
        "is paused",
        lambda s: s.job.state is JobState.PAUSING,
        lambda s: _end(
            s,
            AttemptState.PAUSED,
            JobState.PAUSED,
            _asked(
                s,
                ReasonCode.PAUSED if s.attempt.saves else ReasonCode.PAUSED_BY_SIGNAL,
                with_experiment=ReasonCode.EXPERIMENT_PAUSED,
            ),
        ),
    ),
    Rule(
        "pause by itself",
        "its ranks saved and left at a step of `training.pause_at`",
        "is paused",
        lambda s: s.paused_by_itself,
        _pause_by_itself,
    ),
    Rule(
        "move",
        "it leaves a node, was preempted, or changes its size",
        "recovers, no restart counted",
        lambda s: s.failure is None,
        _end_moved,
    ),
    Rule(
        "reschedule",
        "the failure was the node's",
        "recovers, no restart counted",
        lambda s: s.after.will_retry and s.after.is_free,
        lambda s: _fail(s, JobState.RECOVERING, ReasonCode.RESCHEDULED),
    ),
    Rule(
        "restart",
        "the [cause](#causes) allows another attempt",
        "recovers, one restart counted",
        lambda s: s.after.will_retry,
        lambda s: _fail(
            s,
            JobState.RECOVERING,
            ReasonCode.RESTARTING,
            restarts=s.after.restarts,
            max_restarts=s.job.max_restarts,
        ),
    ),
    Rule(
        "fail",
        "the failure is final",
        "fails",
        lambda s: s.failure and s.failure.final,
        lambda s: _fail(s, JobState.FAILED, ReasonCode.FAILED),
    ),
    Rule(
        "fail repeatedly",
        "it failed twice with the same error and no new step",
        "fails",
        lambda s: s.after.repeated,
        _fail_repeatedly,
    ),
    Rule(
        "run out of restarts",
        "the restart budget is used up",
        "fails",
        lambda s: True,
        _fail_without_restarts,
    ),
)


def decide_attempt(situation: Situation) -> Decision | None:
    """Return the decision about an active attempt; None: nothing to do."""
    later = WHILE_RANKS_RUN if situation.unfinished else ONCE_ALL_ENDED
    rules: tuple[Rule, ...] = (*AT_ANY_TIME, *later)
    for rule in rules:
        if rule.holds(situation):
            return rule.decide(situation)
    return None
