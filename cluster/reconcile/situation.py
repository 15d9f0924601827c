"""An active attempt and everything that its rules ask about, worked out when first asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from trainhall.cluster.lifecycle.host_report import idle_since
from trainhall.cluster.lifecycle.reasons import Reason, ReasonCode, describe
from trainhall.cluster.lifecycle.states import AttemptState, Goal, JobState, NodeState
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.reconcile.decisions import Decision, Regroup
from trainhall.cluster.reconcile.hang_policy import hang_of
from trainhall.cluster.reconcile.resize import (
    Losses,
    collect_losses,
    grow,
    regroup_after,
    resize,
    why_not_resized,
)
from trainhall.cluster.reconcile.restart_policy import AfterFailure, after_failure
from trainhall.cluster.reconcile.spare_capacity import SpareCapacity
from trainhall.cluster.snapshot.model import AttemptFacts, HostFacts, JobFacts
from trainhall.training.link.failure import Cause, Failure
from trainhall.training.link.status import Outcome
from trainhall.training.spec.plan import ChosenPlan


@dataclass(frozen=True)
class Situation:
    now: datetime
    attempt: AttemptFacts
    job: JobFacts
    spare: SpareCapacity
    options: ClusterOptions
    listening_seconds: float

    @property
    def asked_to_stop(self) -> bool:
        return self.attempt.goal == "stop"

    @cached_property
    def unfinished(self) -> list[HostFacts]:
        """Hosts on which it has processes, as far as is known."""
        return [host for host in self.attempt.hosts if host.outcome is None]

    # Sizes, and ranks that are replaced in place.

    @cached_property
    def losses(self) -> Losses:
        return collect_losses(self.now, self.attempt, self.job, self.spare)

    @cached_property
    def regrouping(self) -> Regroup | None:
        if not self.losses:
            return None
        return regroup_after(self.attempt, self.job, self.losses, self.spare)

    @property
    def _may_resize(self) -> bool:
        return not self.losses and self.attempt.not_understood is None

    @cached_property
    def resizing(self) -> Decision | None:
        if not self._may_resize:
            return None
        return resize(self.attempt, self.job, self.spare)

    @cached_property
    def why_not_resized(self) -> Reason | None:
        return why_not_resized(self.now, self.attempt, self.job, self.spare, self.options)

    @cached_property
    def growing(self) -> Decision | None:
        if not self._may_resize:
            return None
        return grow(self.now, self.attempt, self.job, self.spare, self.options)

    # Hosts that are lost.

    @cached_property
    def lost(self) -> list[HostFacts]:
        """Hosts with processes whose nodes are lost or were removed."""
        nodes = self.spare.nodes
        return [h for h in self.unfinished if h.node_id not in nodes or self._is_lost(h)]

    def _is_lost(self, host: HostFacts) -> bool:
        node = self.spare.nodes.get(host.node_id)
        return node is not None and node.state is NodeState.LOST

    @property
    def lost_after_seconds(self) -> float:
        return max(self.options.lost_after_seconds, self.attempt.isolation_seconds or 0.0)

    @cached_property
    def awaited(self) -> list[HostFacts]:
        """Hosts on suspect nodes, where the attempt is to end and has ended on all others."""
        nodes = self.spare.nodes
        suspect = [
            host
            for host in self.unfinished
            if host.node_id in nodes and nodes[host.node_id].state is NodeState.SUSPECT
        ]
        is_all = len(suspect) == len(self.unfinished) < len(self.attempt.hosts)
        return suspect if is_all and self.attempt.goal != "run" else []

    @property
    def others_end_first(self) -> bool:
        """Ranks of other hosts have to end before lost ones are replaced (`on_isolation: stop`).

        Ranks of a lost node have ended on their own (`agent/shim/isolation.py`).
        """
        isolates = self.attempt.isolation_seconds is not None
        return isolates and 0 < len(self.lost) < len(self.unfinished)

    @property
    def may_run_unseen(self) -> bool:
        """Ranks may run of which their node knows nothing any more: its agent's folder was
        replaced, or the agent itself. They will end, as no report reaches them."""
        if self.attempt.isolation_seconds is None:
            return False
        gone = [
            h.report.ended_at for h in self.attempt.hosts if h.report and h.report.phase == "gone"
        ]
        return any(
            at is not None and 0 <= (self.now - at).total_seconds() < self.attempt.isolation_seconds
            for at in gone
        )

    # Failures.

    @cached_property
    def failure(self) -> Failure | None:
        """Failure that the attempt ends with: the first that was reported."""
        attempt = self.attempt
        if attempt.failure is not None:
            return self._cause_of(attempt.failure)
        if attempt.goal == "stop" or self.stopped_agents:
            return None
        if attempt.not_understood is not None:
            message = f"this version does not understand its spec: {attempt.not_understood}"
            return Failure(message=message, final=True)
        # A script that reports nothing gets SIGTERM to pause, and to its shim any way to leave is
        # right. On a host where it comes later, ranks fail as their peers go. Where they fail on
        # all hosts there was no SIGTERM, and the reported failure is the reason.
        everywhere = all(host.outcome is Outcome.FAILED for host in attempt.hosts)
        if attempt.script and attempt.goal == "pause" and not attempt.begun and not everywhere:
            return None
        ended = sorted(attempt.hosts, key=_ended_at)
        return next((found for host in ended if (found := self._failure_on(host))), None)

    def _failure_on(self, host: HostFacts) -> Failure | None:
        if host.outcome is Outcome.FAILED:
            return self._cause_of(host.failure)
        if host.outcome is Outcome.PAUSED and self.job.pause_at:
            return None
        if host.outcome not in (None, Outcome.COMPLETED) and self.attempt.goal == "run":
            return Failure(message=f"its ranks on node {host.node_name} stopped without a command")
        return None

    def _cause_of(self, failure: Failure) -> Failure:
        """Return the cause of a broken connection where another host reports its own failure."""
        if failure.cause is Cause.NETWORK:
            for host in self.attempt.hosts:
                other = host.report.failure if host.report is not None else None
                if other is not None and other.cause not in (Cause.NETWORK, Cause.UNKNOWN):
                    return host.failure
        return failure

    def describe(self, failure: Failure) -> str:
        """Return a failure in one line, with its node where the attempt has several."""
        text = describe(failure)
        if len(self.attempt.hosts) < 2 or failure.node is None or f"node {failure.node}" in text:
            return text
        return f"{text} (node {failure.node})"

    @cached_property
    def hang(self) -> Failure | None:
        return hang_of(self.unfinished, self.attempt.generation)

    @cached_property
    def after(self) -> AfterFailure:
        """Return the consequence of `failure` for the job."""
        assert self.failure is not None
        return after_failure(self.job, self.failure)

    # Agents that were stopped.

    @cached_property
    def stopped_agents(self) -> list[HostFacts]:
        """Hosts on which it ended because the agent did, or because the coordinator was unreachable
        for long, unless it was failing before."""
        if self.attempt.failure is not None:
            return []
        return [
            host
            for host in self.attempt.hosts
            if host.report is not None and (host.report.agent_stopped or host.report.isolated)
        ]

    @property
    def goal_of_stopped_agents(self) -> Goal:
        """Return the goal of the other hosts when agents were stopped: none can save alone."""
        saved = all(host.outcome is Outcome.PAUSED for host in self.stopped_agents)
        return "pause" if saved else "stop"

    @property
    def why_agents_stopped(self) -> str:
        stopped = self.stopped_agents
        reports = [host.report for host in stopped if host.report is not None]
        names = ", ".join(host.node_name for host in stopped)
        many = len(stopped) > 1
        who = f"the agent{'s' if many else ''} on {names}"
        were = f"{who} {'were' if many else 'was'} stopped"
        if any(report.isolated for report in reports):
            were = f"{who} could not reach the coordinator for too long (on_isolation: stop)"
        if self.goal_of_stopped_agents == "pause":
            return f"{were}; the ranks {'saved' if self.attempt.saves else 'were stopped'} first"
        failures = [report.failure for report in reports if report.failure is not None]
        if failures:
            return f"{were}, and {describe(failures[0])}"
        return f"{were} before the ranks had {'ended' if self.attempt.script else 'saved'}"

    # Its start.

    @property
    def starts(self) -> bool:
        return self.attempt.state is AttemptState.STARTING and self.failure is None

    @property
    def plan(self) -> ChosenPlan | None:
        """Plan that its first host made, where its hosts wait for one."""
        first = self.attempt.hosts[0].report
        return first.plan if first is not None and self.attempt.plans else None

    @property
    def plan_refusal(self) -> str | None:
        """Why that host made none, where the job names its strategy."""
        first = self.attempt.hosts[0].report
        return first.plan_refusal if first is not None and self.attempt.plans else None

    @cached_property
    def not_running(self) -> list[HostFacts]:
        """Hosts that do not run their ranks yet."""
        return [
            host
            for host in self.attempt.hosts
            if host.report is None or host.report.phase not in ("running", "stopping", "exited")
        ]

    @property
    def preparing(self) -> Reason | None:
        """Return what hosts do for the environment or the data sets of the job; None: nothing."""
        found = [
            f"node {host.node_name}: {host.report.preparing}"
            for host in self.attempt.hosts
            if host.report is not None and host.report.preparing
        ]
        if not found or self.attempt.goal != "run":
            return None
        return Reason.of(ReasonCode.PREPARING, hosts="; ".join(found))

    @cached_property
    def late_start(self) -> Failure | None:
        """Failure of an attempt that takes too long to start; it names the missing hosts."""
        attempt, missing = self.attempt, self.not_running
        # A script reports no more than that its ranks run.
        if attempt.started_at is None or attempt.begun or (attempt.script and not missing):
            return None
        # A host that downloads says so all the while, and ends it where nothing comes.
        prepared = [host.report.prepared_at for host in attempt.hosts if host.report is not None]
        since = max(at for at in (attempt.started_at, *prepared) if at is not None)
        waited = (self.now - since).total_seconds()
        limit = self.options.start_limit_seconds
        if min(waited, self.listening_seconds) < limit:
            return None
        who = "; ".join(f"{_ranks(host)}: {_describe_phase(host)}" for host in missing)
        who = who or "all ranks run, but none reported that training began"
        return Failure(
            message=f"it did not start within {limit:g} s: {who}",
            node=missing[0].node_name if len(missing) == 1 else None,
            cause=Cause.NOT_STARTED,
        )

    # Its end.

    @property
    def is_idle(self) -> bool:
        """Return whether the interactive job had no session for longer than it allows."""
        limit = self.job.idle_seconds
        if limit is None or self.attempt.state is not AttemptState.RUNNING:
            return False
        reports = [host.report for host in self.attempt.hosts if host.report is not None]
        since = idle_since(reports)
        return since is not None and (self.now - since).total_seconds() >= limit

    @property
    def ended_idle(self) -> bool:
        """Return whether it was stopped for that, and for nothing else since."""
        return self.attempt.reason_code == ReasonCode.IDLE and self.job.state is JobState.RUNNING

    @property
    def paused_by_itself(self) -> bool:
        """Return whether all its ranks left at a step of `training.pause_at`."""
        by_itself = self.attempt.goal == "run" and bool(self.job.pause_at)
        return by_itself and all(host.outcome is Outcome.PAUSED for host in self.attempt.hosts)

    @property
    def completed(self) -> bool:
        return all(host.outcome is Outcome.COMPLETED for host in self.attempt.hosts)

    @property
    def completed_before(self) -> bool:
        """Ranks of a host that was cut off completed the job before they learned of the present
        generation."""
        attempt = self.attempt
        from_scratch = attempt.generation > 1 and not attempt.stepped and not attempt.script
        return from_scratch and any(host.outcome is Outcome.COMPLETED for host in attempt.hosts)

    @property
    def paused_before_joining(self) -> bool:
        """Return whether a host ended at once on a pause, and others' ranks wait for its ranks.

        They would look for a command only after they joined. It had started nothing, or its ranks
        paused by themselves in an earlier generation.
        """
        attempt = self.attempt
        if not any(host.outcome is Outcome.PAUSED for host in attempt.hosts):
            return False
        if attempt.goal == "pause":
            return not (attempt.script or (attempt.begun and attempt.stepped))
        return bool(self.job.pause_at) and attempt.generation > 1 and not attempt.stepped

    @cached_property
    def drained(self) -> list[str]:
        """Names of its nodes that are to be drained or removed."""
        # A node that is not there was removed by a coordinator of an older version.
        return [
            host.node_name
            for host in self.attempt.hosts
            if (node := self.spare.nodes.get(host.node_id)) is not None and node.is_leaving
        ]

    @cached_property
    def uploading(self) -> Sequence[HostFacts]:
        """Hosts whose agents have yet to send what the ranks wrote, which the end waits for.

        A pause or an end is only true once its checkpoint is here. A failure waits for it too,
        since the next attempt starts from there, but not forever. A cancelled job waits for
        nothing.
        """
        if self.job.state is JobState.CANCELLING:
            return []
        patience = timedelta(seconds=self.options.shipping_patience_seconds)
        return [
            host
            for host in self.attempt.hosts
            if (report := host.report) is not None
            and not (report.shipped or self._is_lost(host))
            and (
                self.failure is None
                or report.ended_at is None
                or self.now - report.ended_at < patience
            )
        ]


def _ended_at(host: HostFacts) -> float:
    return host.report.ended_at.timestamp() if host.report and host.report.ended_at else 0.0


def _ranks(host: HostFacts) -> str:
    ranks = ", ".join(map(str, host.ranks))
    return f"rank{'s' if len(host.ranks) != 1 else ''} {ranks} on node {host.node_name}"


def _describe_phase(host: HostFacts) -> str:
    match host.report.phase if host.report is not None else None:
        case None:
            return "its agent has not started them"
        case "planning":
            return "still planning its strategy, or predicting it"
        case "preparing":
            if host.report is not None and host.report.preparing:
                return f"still preparing ({host.report.preparing})"
            return "still fetching a checkpoint or the code, or waiting for the first host"
        case phase:
            return str(phase)
