"""What an active attempt asks for: to be told, to be marked, to end. Pure functions."""

from datetime import datetime, timedelta

from trainhall.cluster.lifecycle.reasons import SIGNALLED, Reason, ReasonCode, describe, running
from trainhall.cluster.lifecycle.states import AttemptState, Goal, JobState, NodeState
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.reconcile.decisions import (
    Decision,
    EndAttempt,
    Explain,
    KeepPlan,
    MarkRunning,
    StopAttempt,
)
from trainhall.cluster.reconcile.hang_policy import hang_of
from trainhall.cluster.reconcile.isolation_policy import end_others, may_still_run, to_end_first
from trainhall.cluster.reconcile.restart_policy import AfterFailure, after_failure, node_lost
from trainhall.cluster.snapshot.model import (
    AttemptFacts,
    ClusterFacts,
    HostFacts,
    JobFacts,
    NodeFacts,
)
from trainhall.training.link.failure import Failure
from trainhall.training.link.failure_cause import Cause
from trainhall.training.link.status import Outcome

SENDING_SECONDS = 5.0
"""After the last rank's end: most hosts have sent everything by then."""


def decide_attempt(
    now: datetime,
    attempt: AttemptFacts,
    job: JobFacts,
    facts: ClusterFacts,
    nodes: dict[str, NodeFacts],
    lost: set[str],
    options: ClusterOptions,
) -> Decision | None:
    """What an active attempt asks for.

    Args:
        nodes: all nodes by id.
        lost: ids of the nodes that are given up.
    """
    silent = [
        host
        for host in attempt.hosts
        if outcome_of(host) is None and (host.node_id not in nodes or host.node_id in lost)
    ]
    if silent and to_end_first(attempt, silent):
        return end_others(attempt, silent[0])
    if may_still_run(now, attempt):
        return None
    if silent:
        return _end_lost(now, attempt, job, silent, nodes.get(silent[0].node_id))
    failure = _failure_of(attempt)
    if any(outcome_of(host) is None for host in attempt.hosts):
        late = _is_late(now, attempt, facts, options)
        return _decide_unfinished(attempt, job, failure, nodes, late, options)
    if attempt.state is AttemptState.STARTING and failure is None and attempt.goal == "run":
        return _mark_running(attempt, job)
    if senders := _still_ships(now, attempt, job, failure, lost, options):
        return _explain_shipping(now, attempt, job, senders)
    return _end(attempt, job, failure)


def _decide_unfinished(
    attempt: AttemptFacts,
    job: JobFacts,
    failure: Failure | None,
    nodes: dict[str, NodeFacts],
    late: bool,
    options: ClusterOptions,
) -> Decision | None:
    """Of an attempt that still has processes on some host."""
    if failure is not None and attempt.goal != "stop":
        others = "its ranks end" if attempt.not_understood else "the other hosts stop"
        reason = Reason.of(ReasonCode.RANK_FAILED, failure=_text(attempt, failure), others=others)
        return StopAttempt(attempt.token, "stop", reason, failure)
    stopped = _with_stopped_agents(attempt)
    if stopped and (goal := _follow(stopped)) != attempt.goal and attempt.goal != "stop":
        reason = Reason.of(ReasonCode.AGENT_STOPPED, agents=_agents_stopped(attempt, stopped))
        return StopAttempt(attempt.token, goal, reason)
    if attempt.goal != "stop" and (before := _over_before_they_met(attempt)):
        reason = Reason.of(ReasonCode.PEERS_NEVER_MET, outcome=before)
        return StopAttempt(attempt.token, "stop", reason)
    going = [host for host in attempt.hosts if outcome_of(host) is None]
    if attempt.goal != "stop" and (hang := hang_of(going, attempt.generation)) is not None:
        return StopAttempt(
            attempt.token, "stop", Reason.of(ReasonCode.HANG, failure=hang.message), hang
        )
    if attempt.goal == "run" and late:
        failure = _late_start(attempt, options)
        reason = Reason.of(ReasonCode.START_TIMEOUT, failure=failure.message)
        return StopAttempt(attempt.token, "stop", reason, failure)
    # A node that is not there was removed by a coordinator of an older version.
    leaving = [
        host.node_name
        for host in attempt.hosts
        if (node := nodes.get(host.node_id)) is not None
        and (node.removing or node.state is NodeState.DRAINING)
    ]
    # Where ranks regroup in place, those that have the state may be there (`elastic`, rule 2).
    leaves = leaving and attempt.stepped and attempt.goal == "run"
    if leaves and job.state in (JobState.STARTING, JobState.RUNNING):
        how = "it saves and moves" if attempt.saves else f"{SIGNALLED} elsewhere"
        reason = Reason.of(ReasonCode.NODE_DRAINED, node=leaving[0], how=how)
        return StopAttempt(attempt.token, "pause", reason)
    first = attempt.hosts[0].report
    planned = first.plan if first is not None and attempt.plans else None
    if planned is not None and attempt.state is AttemptState.STARTING:
        return KeepPlan(
            attempt.token, planned, Reason.of(ReasonCode.STRATEGY_PLANNED, why=planned.reason)
        )
    runs = all(_runs(host) for host in attempt.hosts)
    if attempt.state is AttemptState.STARTING and runs and failure is None:
        return _mark_running(attempt, job)
    return None


def _is_late(
    now: datetime, attempt: AttemptFacts, facts: ClusterFacts, options: ClusterOptions
) -> bool:
    """It takes too long to begin. Of a script nobody tells more than that its ranks run."""
    if attempt.started_at is None or attempt.begun:
        return False
    if attempt.script and all(_runs(host) for host in attempt.hosts):
        return False
    waited = (now - attempt.started_at).total_seconds()
    return min(waited, facts.listening_seconds) >= options.start_limit_seconds


def _late_start(attempt: AttemptFacts, options: ClusterOptions) -> Failure:
    """What an attempt that takes too long to begin ends with; it names who is missing."""
    missing = [host for host in attempt.hosts if not _runs(host)]
    missing_text = "; ".join(f"{_ranks(host)}: {_describe_phase(host)}" for host in missing)
    missing_text = missing_text or "all its ranks run, and none has told that training began"
    return Failure(
        message=f"it did not start within {options.start_limit_seconds:g} s: {missing_text}",
        node=missing[0].node_name if len(missing) == 1 else None,
        cause=Cause.NOT_STARTED,
    )


def _ranks(host: HostFacts) -> str:
    ranks = ", ".join(map(str, host.ranks))
    return f"rank{'s' if len(host.ranks) != 1 else ''} {ranks} on node {host.node_name}"


def _describe_phase(host: HostFacts) -> str:
    match host.report.phase if host.report is not None else None:
        case None:
            return "its agent has not taken them up"
        case "planning":
            return "still planning the job's strategy"
        case "preparing":
            return "still fetching a checkpoint or the code, or waiting for the first host"
        case phase:
            return str(phase)


def _runs(host: HostFacts) -> bool:
    return host.report is not None and host.report.phase in ("running", "stopping", "exited")


def _mark_running(attempt: AttemptFacts, job: JobFacts) -> MarkRunning:
    hosts = [host.node_name for host in attempt.hosts]
    return MarkRunning(attempt.token, job.state, running(job.workers, hosts))


def _still_ships(
    now: datetime,
    attempt: AttemptFacts,
    job: JobFacts,
    failure: Failure | None,
    lost: set[str],
    options: ClusterOptions,
) -> list[HostFacts]:
    """The hosts for which the end has to wait until their agents have sent what the ranks wrote.

    A pause or an end is only true once its checkpoint is here. A failure waits for it too, since
    the next attempt starts from there, but not without end. A cancelled job waits for nothing.
    """
    senders: list[HostFacts] = []
    if job.state is JobState.CANCELLING:
        return senders
    for host in attempt.hosts:
        report = host.report
        if report is None or report.shipped or host.node_id in lost:
            continue
        patience = timedelta(seconds=options.shipping_patience_seconds)
        if failure is None or report.ended_at is None or now - report.ended_at < patience:
            senders.append(host)
    return senders


def _explain_shipping(
    now: datetime, attempt: AttemptFacts, job: JobFacts, senders: list[HostFacts]
) -> Explain | None:
    """Why a job without processes has not ended: the link may be slow, or the disk here full."""
    ends = [host.report.ended_at for host in attempt.hosts if host.report and host.report.ended_at]
    if now - max(ends, default=now) < timedelta(seconds=SENDING_SECONDS):
        return None
    names = ", ".join(host.node_name for host in senders)
    one = len(senders) == 1
    who = f"node {names} still uploads" if one else f"nodes {names} still upload"
    reason = Reason.of(ReasonCode.UPLOADING, who=who)
    return Explain(job.id, job.state, reason) if reason.text != job.reason else None


def _end(attempt: AttemptFacts, job: JobFacts, failure: Failure | None) -> EndAttempt:
    """Of an attempt whose last process ended."""
    completed = all(outcome_of(host) is Outcome.COMPLETED for host in attempt.hosts)
    if job.state is JobState.CANCELLING:
        reason = Reason.of(ReasonCode.CANCELLED)
        return _ended(attempt, job, AttemptState.CANCELLED, JobState.CANCELLED, reason)
    if completed or (failure is None and _completed_before(attempt)):
        reason = Reason.of(ReasonCode.COMPLETED)
        return _ended(attempt, job, AttemptState.COMPLETED, JobState.COMPLETED, reason)
    stopped = _with_stopped_agents(attempt)
    if stopped:
        return _end_with_agents(attempt, job, stopped)
    if job.state is JobState.PAUSING:
        if failure is not None:
            how = (
                "resumes from its last checkpoint" if attempt.saves else "starts again once resumed"
            )
            text = _text(attempt, failure)
            reason = Reason.of(ReasonCode.FAILED_WHILE_PAUSING, failure=text, how=how)
            return _ended(attempt, job, AttemptState.FAILED, JobState.PAUSED, reason, failure)
        reason = Reason.of(ReasonCode.PAUSED)
        return _ended(attempt, job, AttemptState.PAUSED, JobState.PAUSED, reason)
    if failure is None:
        why = Reason.stored(attempt.reason_code, attempt.reason)
        moved = Failure(message=attempt.reason, cause=Cause.PREEMPTED, step=job.step or None)
        return _ended(attempt, job, AttemptState.PAUSED, JobState.RECOVERING, why, moved)
    after = after_failure(job, failure)
    if after.goes_on:
        end = JobState.RECOVERING
        text, restarts = _text(attempt, failure), after.restarts
        reason = Reason.of(
            ReasonCode.RESTARTING, failure=text, restarts=restarts, max_restarts=job.max_restarts
        )
        if after.is_free:
            reason = Reason.of(ReasonCode.RESCHEDULED, why=text)
    else:
        reason = _no_restart(job, failure, after, _text(attempt, failure))
        end = JobState.FAILED
    return _ended(
        attempt, job, AttemptState.FAILED, end, reason, failure,
        restarts=after.restarts, step=after.step,
    )  # fmt: skip


def _no_restart(job: JobFacts, failure: Failure, after: AfterFailure, text: str) -> Reason:
    if failure.final:
        return Reason.of(ReasonCode.FAILED, failure=text)
    if after.repeated:
        step = "a new step" if after.step else "its first step"
        return Reason.of(ReasonCode.FAILED_REPEATEDLY, step=step, failure=text)
    limit = f"max_restarts is {job.max_restarts}" + (
        ", each without a new step" if job.max_restarts > 1 else ""
    )
    return Reason.of(ReasonCode.RESTARTS_EXHAUSTED, failure=text, limit=limit)


def _end_with_agents(attempt: AttemptFacts, job: JobFacts, stopped: list[HostFacts]) -> EndAttempt:
    """Somebody stopped an agent, and what ran there with it: no restart is the worse for it."""
    why = _agents_stopped(attempt, stopped)
    if job.state is JobState.PAUSING:
        end, reason = JobState.PAUSED, Reason.of(ReasonCode.PAUSED_WITH_AGENT, why=why)
    else:
        end, reason = JobState.RECOVERING, Reason.of(ReasonCode.RESCHEDULED, why=why)
    if _follow(stopped) == "pause":
        saved = Reason.of(ReasonCode.SAVED_WITH_AGENT, why=why)
        return _ended(attempt, job, AttemptState.PAUSED, end, reason, attempt_reason=saved)
    failure = Failure(message=why, cause=Cause.PREEMPTED, step=job.step or None)
    return _ended(attempt, job, AttemptState.FAILED, end, reason, failure)


def _with_stopped_agents(attempt: AttemptFacts) -> list[HostFacts]:
    """The hosts on which it ended because the agent did, or because the coordinator was not heard
    for long, unless it was failing before."""
    if attempt.failure is not None:
        return []
    return [h for h in attempt.hosts if h.report and (h.report.agent_stopped or h.report.isolated)]


def _follow(stopped: list[HostFacts]) -> Goal:
    """What the other hosts do when agents were stopped: none of them can save without the rest."""
    return "pause" if all(outcome_of(host) is Outcome.PAUSED for host in stopped) else "stop"


def _agents_stopped(attempt: AttemptFacts, stopped: list[HostFacts]) -> str:
    names = ", ".join(host.node_name for host in stopped)
    who = f"the agent{'s' if len(stopped) > 1 else ''} on {names}"
    were = f"{who} {'were' if len(stopped) > 1 else 'was'} stopped"
    if any(host.report is not None and host.report.isolated for host in stopped):
        were = f"{who} did not reach the coordinator for long (on_isolation: stop)"
    if _follow(stopped) == "pause":
        return f"{were}; the ranks {'saved' if attempt.saves else 'were told to end'} first"
    for host in stopped:
        if host.report is not None and host.report.failure is not None:
            return f"{were}, and {describe(host.report.failure)}"
    return f"{were} before the ranks had {'ended' if attempt.script else 'saved'}"


def _over_before_they_met(attempt: AttemptFacts) -> str | None:
    """What became of an attempt on one host while the ranks of others wait for those of that host,
    in vain, and would look for a command only after they met."""
    outcomes = [outcome_of(host) for host in attempt.hosts]
    met = attempt.script or (attempt.begun and attempt.stepped)
    if attempt.goal == "pause" and not met and Outcome.PAUSED in outcomes:
        return "was to pause"  # told so, a host that had started nothing ended at once
    return "was completed" if _completed_before(attempt) else None


def _completed_before(attempt: AttemptFacts) -> bool:
    """Ranks of a host that was cut off completed the job before they heard of the present
    generation."""
    from_scratch = attempt.generation > 1 and not attempt.stepped and not attempt.script
    return from_scratch and any(outcome_of(host) is Outcome.COMPLETED for host in attempt.hosts)


def _ended(
    attempt: AttemptFacts,
    job: JobFacts,
    attempt_end: AttemptState,
    job_end: JobState,
    reason: Reason,
    failure: Failure | None = None,
    *,
    attempt_reason: Reason | None = None,
    restarts: int | None = None,
    step: int | None = None,
) -> EndAttempt:
    path: tuple[JobState, ...] = (job_end,)
    if job.state is JobState.STARTING and job_end is JobState.COMPLETED:
        path = (JobState.RUNNING, JobState.COMPLETED)
    return EndAttempt(
        token=attempt.token,
        attempt_start=attempt.state,
        attempt_end=attempt_end,
        attempt_reason=attempt_reason or (_failed(attempt, failure) if failure else reason),
        job_start=job.state,
        job_path=path,
        reason=reason,
        failure=failure,
        restarts=0 if attempt_end is AttemptState.COMPLETED else restarts,
        restarts_step=step,
    )


def _end_lost(
    now: datetime,
    attempt: AttemptFacts,
    job: JobFacts,
    hosts: list[HostFacts],
    node: NodeFacts | None,
) -> EndAttempt:
    """
    Args:
        node: the first of the hosts; None: it was removed.
    """
    failure = node_lost(now, hosts[0].node_name, node, job.step)
    why = failure.message
    ends = {
        JobState.PAUSING: (JobState.PAUSED, ReasonCode.PAUSED_AFTER_NODE_LOST),
        JobState.CANCELLING: (JobState.CANCELLED, ReasonCode.CANCELLED_AFTER_NODE_LOST),
    }
    end, code = ends.get(job.state, (JobState.RECOVERING, ReasonCode.REPLACED))
    return EndAttempt(
        token=attempt.token,
        attempt_start=attempt.state,
        attempt_end=AttemptState.LOST,
        attempt_reason=Reason.of(ReasonCode.NODE_LOST, why=why),
        job_start=job.state,
        job_path=(end,),
        reason=Reason.of(code, why=why),
        failure=failure,
        lost_nodes=tuple(host.node_id for host in hosts),
    )


def outcome_of(host: HostFacts) -> Outcome | None:
    return host.report.outcome if host.report is not None else None


def _failure_of(attempt: AttemptFacts) -> Failure | None:
    """The failure that the attempt ends with: the first that was reported, or None."""
    if attempt.failure is not None:
        return _behind_it(attempt, attempt.failure)
    if attempt.goal == "stop" or _with_stopped_agents(attempt):
        return None
    if attempt.not_understood is not None:
        message = f"this version does not understand its spec: {attempt.not_understood}"
        return Failure(message=message, final=True)
    ended = [host for host in attempt.hosts if host.report is not None and host.report.outcome]
    # A script that tells nothing gets SIGTERM to pause, and to its shim any way to leave is right.
    # On a host where it comes later, ranks fail as their peers go. Where they fail on all hosts
    # there was no SIGTERM, and the reported failure is the reason.
    everywhere = all(outcome_of(host) is Outcome.FAILED for host in attempt.hosts)
    signalled = attempt.script and attempt.goal == "pause" and not attempt.begun and not everywhere
    ended.sort(
        key=lambda h: h.report.ended_at.timestamp() if h.report and h.report.ended_at else 0.0
    )
    for host in ended:
        report = host.report
        assert report is not None
        if report.outcome is Outcome.COMPLETED or signalled:
            continue
        if report.outcome is Outcome.FAILED:
            return _behind_it(attempt, _reported_failure(host))
        if attempt.goal == "run":
            message = f"its ranks on node {host.node_name} stopped without having been told to"
            return Failure(message=message)
    return None


def _reported_failure(host: HostFacts) -> Failure:
    reported = host.report.failure if host.report is not None else None
    failure = reported or Failure(message="failed without a message")
    return failure.model_copy(update={"node": host.node_name})


def _text(attempt: AttemptFacts, failure: Failure) -> str:
    """A failure in one line, with its node where the attempt has several."""
    text = describe(failure)
    if len(attempt.hosts) < 2 or failure.node is None or f"node {failure.node}" in text:
        return text
    return f"{text} (node {failure.node})"


def _failed(attempt: AttemptFacts, failure: Failure) -> Reason:
    return Reason.of(ReasonCode.FAILED, failure=_text(attempt, failure))


def _behind_it(attempt: AttemptFacts, failure: Failure) -> Failure:
    """The cause of a broken connection, where another host tells of a failure of its own."""
    if failure.cause is not Cause.NETWORK:
        return failure
    for host in attempt.hosts:
        other = host.report.failure if host.report is not None else None
        if other is not None and other.cause not in (Cause.NETWORK, Cause.UNKNOWN):
            return _reported_failure(host)
    return failure
