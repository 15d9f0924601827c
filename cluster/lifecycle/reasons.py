"""Why something is as it is: a code that code compares, and parameters for the text.

All texts of the coordinator's decisions are rendered here. What a job waits for is worded by
`trainhall.cluster.scheduling.reasons`, and what failed by the failure itself.
"""

import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from trainhall.training.link.failure import Failure


class ReasonCode(StrEnum):
    # of jobs, by users
    SUBMITTED = "submitted"
    PAUSE_REQUESTED = "pause_requested"
    PAUSED = "paused"
    PAUSED_BEFORE_START = "paused_before_start"
    PAUSED_WHILE_WAITING = "paused_while_waiting"
    RESUMED = "resumed"
    RESIZE_REQUESTED = "resize_requested"
    RESTORED = "restored"
    CANCEL_REQUESTED = "cancel_requested"
    CANCELLED = "cancelled"
    # of jobs in the queue
    PLACED = "placed"
    RESTART_BACKOFF = "restart_backoff"
    NEVER_FITS = "never_fits"
    QUOTA_EXCEEDED = "quota_exceeded"
    WAITING_FOR_DEVICES = "waiting_for_devices"
    WAITING_FOR_PREEMPTION = "waiting_for_preemption"
    WAITING_FOR_JOB = "waiting_for_job"
    # of attempts that run
    PLANNING_STRATEGY = "planning_strategy"
    STRATEGY_PLANNED = "strategy_planned"
    RUNNING = "running"
    REGROUPED = "regrouped"
    RESIZED = "resized"
    GREW = "grew"
    PREEMPTED = "preempted"
    # of attempts that stop or ended
    RANK_FAILED = "rank_failed"
    HANG = "hang"
    START_TIMEOUT = "start_timeout"
    AGENT_STOPPED = "agent_stopped"
    PEERS_NEVER_MET = "peers_never_met"
    NODE_DRAINED = "node_drained"
    UPLOADING = "uploading"
    COMPLETED = "completed"
    RESTARTING = "restarting"
    RESCHEDULED = "rescheduled"
    FAILED = "failed"
    FAILED_REPEATEDLY = "failed_repeatedly"
    RESTARTS_EXHAUSTED = "restarts_exhausted"
    FAILED_WHILE_PAUSING = "failed_while_pausing"
    SAVED_WITH_AGENT = "saved_with_agent"
    PAUSED_WITH_AGENT = "paused_with_agent"
    NODE_LOST = "node_lost"
    REPLACED = "replaced"
    PAUSED_AFTER_NODE_LOST = "paused_after_node_lost"
    CANCELLED_AFTER_NODE_LOST = "cancelled_after_node_lost"
    ISOLATED_RANKS_END = "isolated_ranks_end"
    # of devices
    DEVICE_LEFT = "device_left"
    ATTEMPT_OVER = "attempt_over"
    # of nodes
    REGISTERED = "registered"
    JOINED = "joined"
    REPORTS = "reports"
    AGENT_AWAY = "agent_away"
    UNREACHABLE = "unreachable"
    LOST = "lost"
    DRAINING = "draining"
    DRAINED = "drained"
    UNDRAINED = "undrained"
    REMOVED = "removed"


_TEXTS: Mapping[ReasonCode, str] = {
    ReasonCode.SUBMITTED: "submitted",
    ReasonCode.PAUSE_REQUESTED: "pause requested by a user",
    ReasonCode.PAUSED: "paused by a user",
    ReasonCode.PAUSED_BEFORE_START: "paused by a user before it started",
    ReasonCode.PAUSED_WHILE_WAITING: "paused by a user while it waited in the queue",
    ReasonCode.RESUMED: "resumed by a user{changes}",
    ReasonCode.RESIZE_REQUESTED: "resize requested by a user: {change}",
    ReasonCode.RESTORED: "restored by a user from the checkpoint of step {step}",
    ReasonCode.CANCEL_REQUESTED: "cancellation requested by a user",
    ReasonCode.CANCELLED: "cancelled by a user",
    ReasonCode.PLACED: "{text}",
    ReasonCode.RESTART_BACKOFF: "{text}",
    ReasonCode.NEVER_FITS: "{text}",
    ReasonCode.QUOTA_EXCEEDED: "{text}",
    ReasonCode.WAITING_FOR_DEVICES: "{text}",
    ReasonCode.WAITING_FOR_PREEMPTION: "{text}",
    ReasonCode.WAITING_FOR_JOB: "{text}",
    ReasonCode.PLANNING_STRATEGY: "planning its strategy on node {node}; {placed}",
    ReasonCode.STRATEGY_PLANNED: "planned: {why}",
    ReasonCode.RUNNING: "{ranks} on {nodes}",
    ReasonCode.REGROUPED: "{losses}; {change}{cost}",
    ReasonCode.RESIZED: "resized by a user; {change}{how}",
    ReasonCode.GREW: "{count} devices came free; {change}{how}",
    ReasonCode.PREEMPTED: "preempted by {job}, which has priority {priority}{change}{how}",
    ReasonCode.RANK_FAILED: "{failure}; {others}",
    ReasonCode.HANG: "{failure}",
    ReasonCode.START_TIMEOUT: "{failure}",
    ReasonCode.AGENT_STOPPED: "{agents}; the other hosts end too",
    ReasonCode.PEERS_NEVER_MET: (
        "it {outcome} before the ranks of all hosts had joined; the others end too"
    ),
    ReasonCode.NODE_DRAINED: "node {node} is being drained: {how}",
    ReasonCode.UPLOADING: "its ranks have ended; {who} what they saved",
    ReasonCode.COMPLETED: "completed",
    ReasonCode.RESTARTING: "{failure}; restart {restarts} of {max_restarts}",
    ReasonCode.RESCHEDULED: "{failure}; will be rescheduled (not counted as a restart)",
    ReasonCode.FAILED: "{failure}",
    ReasonCode.FAILED_REPEATEDLY: (
        "failed twice with the same error before {step}; not retrying: {failure}"
    ),
    ReasonCode.RESTARTS_EXHAUSTED: "{failure}; no restart is left ({limit})",
    ReasonCode.FAILED_WHILE_PAUSING: "{failure} while it was being paused; it {how}",
    ReasonCode.SAVED_WITH_AGENT: "{why}",
    ReasonCode.PAUSED_WITH_AGENT: "paused; {why}",
    ReasonCode.NODE_LOST: "{why}",
    ReasonCode.REPLACED: "{why}; its attempt is replaced",
    ReasonCode.PAUSED_AFTER_NODE_LOST: "{why} before it had saved; paused",
    ReasonCode.CANCELLED_AFTER_NODE_LOST: "cancelled; {why}, its ranks end when it reconnects",
    ReasonCode.ISOLATED_RANKS_END: (
        "node {node} is lost; the ranks of the other hosts end before the job moves"
    ),
    ReasonCode.DEVICE_LEFT: "attempt {attempt} has left this device",
    ReasonCode.ATTEMPT_OVER: "attempt {attempt} is over on this node",
    ReasonCode.REGISTERED: "registered, not yet joined",
    ReasonCode.JOINED: "joined; no report yet",
    ReasonCode.REPORTS: "its agent reports",
    ReasonCode.AGENT_AWAY: "its agent was stopped; it gets no new work until the agent restarts",
    ReasonCode.UNREACHABLE: "unreachable; no heartbeat for {seconds:.0f} s; it gets no new work",
    ReasonCode.LOST: "no heartbeat for {seconds:.0f} s; its attempts are replaced",
    ReasonCode.DRAINING: "{why}: its jobs save and move",
    ReasonCode.DRAINED: "{why}; nothing runs on it",
    ReasonCode.UNDRAINED: "undrained by a user",
    ReasonCode.REMOVED: "{why}",
}


@dataclass(frozen=True)
class Reason:
    code: ReasonCode
    params: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, code: ReasonCode, **params: Any) -> Self:
        return cls(code, params)

    @classmethod
    def stored(cls, code: str, text: str) -> Self:
        """A reason that is repeated as it was stored with another row."""
        known = code in set(ReasonCode)
        return cls(ReasonCode(code) if known else ReasonCode.FAILED, {"stored": text})

    @property
    def text(self) -> str:
        """The sentence for people."""
        stored: str | None = self.params.get("stored")
        return _TEXTS[self.code].format_map(self.params) if stored is None else stored

    def __str__(self) -> str:
        return self.text


SIGNALLED = "its script is sent SIGTERM and starts again"
"""Reason for an attempt that does not save (`AttemptFacts.saves`) and is to resume in another
way."""
REMOVED_BY_USER = "removed by a user"


def event_data(reason: Reason) -> dict[str, Any]:
    """The part of an event's data that says which job something was done for."""
    return {name: reason.params[name] for name in ("for_job",) if name in reason.params}


def running(count: int, nodes: Iterable[str]) -> Reason:
    """The reason of what runs, and nothing is the matter with it."""
    ranks = f"{count} rank{'s' if count != 1 else ''}"
    return Reason.of(ReasonCode.RUNNING, ranks=ranks, nodes=", ".join(nodes))


def job_label(job_id: str, name: str | None) -> str:
    """A job in a sentence: its name, with the id behind it."""
    return f"“{name}” ({job_id})" if name else f"job {job_id}"


def describe(failure: Failure) -> str:
    """A failure in one line: its message, with the exit code or signal if that is not in it."""
    message = failure.message.strip() or "failed without a message"
    if failure.signal is not None:
        try:
            name = signal.Signals(failure.signal).name
        except ValueError:
            name = f"signal {failure.signal}"
        return message if name in message else f"{message} ({name})"
    if failure.exit_code is not None and "exit code" not in message:
        return f"{message} (exit code {failure.exit_code})"
    return message
