"""Why something is as it is: a code that code compares, and parameters for the text.

All texts of the coordinator's decisions are rendered here. `trainhall.cluster.scheduling.reasons`
words the devices that a job waits for, and a failure words itself.
"""

import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Any, Self

from trainhall.training.link.failure import Failure

A_USER = "a user"
"""Name of whoever did something, where there are no accounts."""


class ReasonCode(StrEnum):
    """Code, and the sentence for people, with places for its parameters.

    `{user}` is whoever asked for it, or “a user” if that is not known; `{by}` is “ by maria”, or
    nothing.
    """

    template: str

    def __new__(cls, code: str, template: str = "") -> Self:
        self = str.__new__(cls, code)
        self._value_ = code
        self.template = template
        return self

    # of jobs, by users
    SUBMITTED = ("submitted", "submitted{by}")
    PAUSE_REQUESTED = ("pause_requested", "pause requested by {user}")
    PAUSED = ("paused", "paused by {user}")
    PAUSED_BY_SIGNAL = (
        "paused_by_signal",
        "paused by {user}: SIGTERM ended its script, which starts again once resumed",
    )
    PAUSED_AT_STEP = ("pause_at", "paused at step {step:,}, as training.pause_at says")
    PAUSED_BEFORE_START = ("paused_before_start", "paused by {user} before it started")
    PAUSED_WHILE_WAITING = ("paused_while_waiting", "paused by {user} while it waited in the queue")
    RESUMED = ("resumed", "resumed by {user}{changes}")
    RESIZE_REQUESTED = ("resize_requested", "resize requested by {user}: {change}")
    RESTORED = ("restored", "restored by {user} from the checkpoint of step {step:,}")
    CANCEL_REQUESTED = ("cancel_requested", "cancellation requested by {user}")
    CANCELLED = ("cancelled", "cancelled by {user}")
    # of runs that run elsewhere
    RUN_LOGGED = ("run_logged", "runs elsewhere; logged by {user}")
    RUN_STATUS = ("run_status", "its client reported {status}")
    RUN_IMPORTED = ("run_imported", "imported by {user}: {status}")
    # of the jobs of experiments
    TRIAL_STARTED = ("trial_started", "submitted as {run} of {experiment}")
    EXPERIMENT_PAUSED = ("experiment_paused", "paused by {user} with {experiment}")
    EXPERIMENT_RESUMED = ("experiment_resumed", "resumed by {user} with {experiment}")
    EXPERIMENT_CANCELLED = ("experiment_cancelled", "cancelled by {user} with {experiment}")
    PAUSED_AT_RUNG = ("paused_at_rung", "paused at step {step:,}, a rung of its experiment")
    WAITS_AT_RUNG = (
        "waits_at_rung",
        "waits at step {step:,} of {experiment}: it continues when it is among the best {share}",
    )
    PROMOTED = ("promoted", "promoted from rung {rung} of {experiment}")
    STOPPED_EARLY = ("stopped_early", "stopped early {when}: {why}")
    # of experiments and their trials
    TRIALS_RUN = ("trials_run", "at most {parallel} unfinished at a time")
    NO_RUN_FITS = ("no_run_fits", "none of its unfinished runs can start: {why}")
    TRIALS_STARTED = ("trials_started", "all runs are started")
    TRIALS_ENDED = ("trials_ended", "{completed} of {total} runs completed{stopped}{rated}")
    TRIAL_NOT_RATED = ("trial_not_rated", "{run} has no objective: {why}")
    PAUSED_UNRATED = (
        "paused_unrated",
        "{run} has no objective, so no further run starts until you resume: {why}",
    )
    NO_OBJECTIVE = ("no_objective", "completed without an objective: {why}")
    CANNOT_RUN = ("cannot_run", "cannot run: {why}")
    TRIAL_NOT_STARTED = ("trial_not_started", "could not be started: {why}")
    JOB_DELETED = ("job_deleted", "its job was deleted")
    # of jobs in the queue
    PLACED = ("placed", "placed on {devices}")
    RESTART_BACKOFF = ("restart_backoff", "{history}restarts at {time}; {needs}")
    NEVER_FITS = ("never_fits", "{history}{needs}; {why}")
    QUOTA_EXCEEDED = ("quota_exceeded", "{history}{needs}; {quota}")
    QUOTA_TOO_SMALL = ("quota_too_small", "{history}{needs}; {quota}")
    WAITING_FOR_DEVICES = ("waiting_for_devices", "{history}{needs}; {devices}")
    WAITING_FOR_PREEMPTION = (
        "waiting_for_preemption",
        "{history}{needs}; {jobs} {are} being preempted for it",
    )
    WAITING_FOR_JOB = (
        "waiting_for_job",
        "{history}{needs}; waiting for {ahead}, ahead in the queue",
    )
    # of attempts that run
    PLANNING_STRATEGY = ("planning_strategy", "planning its strategy on node {node}; {placed}")
    PREDICTING_STRATEGY = (
        "predicting_strategy",
        "predicting memory and step time on node {node}; {placed}",
    )
    PREPARING = ("preparing", "preparing on {hosts}")
    IDLE = ("idle", "idle for {time} (interactive.idle_seconds)")
    STRATEGY_PLANNED = ("strategy_planned", "planned: {why}")
    STRATEGY_PREDICTED = ("strategy_predicted", "predicted: {why}")
    STRATEGY_NOT_PREDICTED = ("strategy_not_predicted", "not predicted: {why}")
    RUNNING = ("running", "{ranks} on {nodes}")
    REGROUPED = ("regrouped", "{losses}; {change}{cost}")
    RESIZED = ("resized", "resized by {user}; {change}{how}")
    GREW = ("grew", "{count} devices became free; {change}{how}")
    PREEMPTED = ("preempted", "preempted by {job}, which has priority {priority}{change}{how}")
    # of attempts that stop or ended
    RANK_FAILED = ("rank_failed", "{failure}; {others}")
    HANG = ("hang", "{failure}")
    START_TIMEOUT = ("start_timeout", "{failure}")
    AGENT_STOPPED = ("agent_stopped", "{agents}; the other hosts stop too")
    PEERS_NEVER_JOINED = (
        "peers_never_joined",
        "{outcome} before the ranks of all hosts had joined; the others stop too",
    )
    NODE_DRAINED = ("node_drained", "node {node} is being drained: {how}")
    UPLOADING = ("uploading", "its ranks have ended; {who} what they saved")
    AWAITING_NODE = (
        "awaiting_node",
        "waiting until {nodes} reports again or is lost (at {time}); the other ranks have ended",
    )
    COMPLETED = ("completed", "completed")
    RESTARTING = ("restarting", "{failure}; restart {restarts} of {max_restarts}")
    RESCHEDULED = ("rescheduled", "{failure}; will be rescheduled (not counted as a restart)")
    FAILED = ("failed", "{failure}")
    FAILED_REPEATEDLY = (
        "failed_repeatedly",
        "{failure}; not retried: it failed twice with the same error before {step}",
    )
    RESTARTS_EXHAUSTED = ("restarts_exhausted", "{failure}; no restarts left ({limit})")
    FAILED_WHILE_PAUSING = ("failed_while_pausing", "{failure} while it was being paused; it {how}")
    SAVED_WITH_AGENT = ("saved_with_agent", "{why}")
    PAUSED_WITH_AGENT = ("paused_with_agent", "paused; {why}")
    NODE_LOST = ("node_lost", "{why}")
    REPLACED = ("replaced", "{why}; its attempt is replaced")
    PAUSED_AFTER_NODE_LOST = ("paused_after_node_lost", "{why} before it had saved; paused")
    CANCELLED_AFTER_NODE_LOST = (
        "cancelled_after_node_lost",
        "cancelled; {why}, its ranks end when it reconnects",
    )
    ISOLATED_RANKS_END = (
        "isolated_ranks_end",
        "node {node} is lost; the ranks of the other hosts end before the job moves",
    )
    # of devices
    DEVICE_LEFT = ("device_left", "attempt {attempt} has left this device")
    ATTEMPT_OVER = ("attempt_over", "attempt {attempt} ended on this node")
    # of nodes
    REGISTERED = ("registered", "registered{by}, not yet joined")
    JOINED = ("joined", "joined; no report yet")
    REPORTS = ("reports", "agent connected")
    AGENT_OFFLINE = (
        "agent_offline",
        "its agent was stopped; it gets no new work until the agent restarts",
    )
    UNREACHABLE = (
        "unreachable",
        "unreachable; no heartbeat for {seconds:.0f} s; it gets no new work",
    )
    LOST = ("lost", "no heartbeat for {seconds:.0f} s; its attempts are replaced")
    DRAIN_REQUESTED = ("drain_requested", "drain requested: {why}")
    DRAINING = ("draining", "{why}: its jobs save and move")
    DRAINED = ("drained", "{why}; nothing runs on it")
    UNDRAINED = ("undrained", "undrained by {user}")
    LABELS_CHANGED = ("labels_changed", "labels{by}: {labels}")
    PROJECTS_CHANGED = ("projects_changed", "{change}{by}")
    REMOVED = ("removed", "{why}")


class EventCode(StrEnum):
    """Code of an event that is not the reason of a state."""

    ATTEMPT_STARTED = "attempt_started"
    CHECKPOINT_SAVED = "checkpoint_saved"
    CHECKPOINT_NOT_SAVED = "checkpoint_not_saved"
    CHECKPOINT_REFUSED = "checkpoint_refused"
    CHECKPOINT_DELETED = "checkpoint_deleted"
    CHECKPOINT_CORRUPT = "checkpoint_corrupt"
    CHECKPOINT_REPAIRED = "checkpoint_repaired"
    OUTPUT_NOT_STORED = "output_not_stored"
    OUTPUT_SHARED = "output_shared"
    OUTPUTS_WAIT = "outputs_wait"
    DATA_DIFFERS = "data_differs"
    GRADIENTS_RECORDED = "gradients_recorded"
    PROFILE_REQUESTED = "profile_requested"
    PROFILE_REPORTED = "profile_reported"
    NETWORK_PROBED = "network_probed"
    RESIZE_NOT_APPLIED = "resize_not_applied"
    TAGS_CHANGED = "tags_changed"
    NOTES_CHANGED = "notes_changed"
    ARCHIVED = "archived"
    UNARCHIVED = "unarchived"
    LOSS_NOT_FINITE = "loss_not_finite"
    LOSS_SPIKE = "loss_spike"
    # as ranks reported it
    RANK_STARTED = "rank_started"
    RANK_PAUSED = "rank_paused"
    RANK_COMPLETED = "rank_completed"
    RANK_ERROR = "rank_error"
    RANK_NOTE = "rank_note"
    RANK_REPORT_DISCARDED = "rank_report_discarded"
    RECOVERED = "recovered"


@dataclass(frozen=True)
class Reason:
    code: ReasonCode
    params: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, code: ReasonCode, **params: Any) -> Self:
        return cls(code, params)

    @classmethod
    def stored(cls, code: str, text: str, *, user: str | None = None) -> Self:
        """Return a reason that is repeated as it was stored with another row."""
        known = code in set(ReasonCode)
        params = {"stored": text, "user": user}
        return cls(ReasonCode(code) if known else ReasonCode.FAILED, params)

    @cached_property
    def text(self) -> str:
        """The sentence for people."""
        stored: str | None = self.params.get("stored")
        if stored is not None:
            return stored
        user: str | None = self.params.get("user")
        named = {"user": user or A_USER, "by": f" by {user}" if user else ""}
        return self.code.template.format_map({**self.params, **named})

    def is_stored(self, code: str, text: str) -> bool:
        """Return whether a row with this code and text has the reason already."""
        return self.code == code and self.text == text

    def __str__(self) -> str:
        return self.text


SIGNALLED = "its script gets SIGTERM and starts again"
"""Reason for an attempt that does not save (`AttemptFacts.saves`) and is to resume in another
way."""


def removed_by(user: str | None) -> str:
    """Return why a node that is being removed drains."""
    return f"removed by {user or A_USER}"


def event_data(reason: Reason) -> dict[str, Any]:
    """Return the part of an event's data that says which job something was done for, and which
    user asked for it."""
    kept = ("for_job", "user")
    return {name: reason.params[name] for name in kept if reason.params.get(name) is not None}


def running(count: int, nodes: Iterable[str]) -> Reason:
    """Return the reason of what runs, and nothing is the matter with it."""
    ranks = f"{count} rank{'s' if count != 1 else ''}"
    return Reason.of(ReasonCode.RUNNING, ranks=ranks, nodes=", ".join(nodes))


def clock_time(when: datetime, now: datetime, *, seconds: bool = False) -> str:
    """Return a time as every sentence shows it, to readers anywhere.

    It is in UTC, and says so, with the day only if it is another one.
    """
    text = when.strftime("%H:%M:%S UTC" if seconds else "%H:%M UTC")
    return text if when.date() == now.date() else f"{text} on {when.strftime('%b %d')}"


FOREIGN_JOB = "a job of another project"
"""In place of a job's name and id, for those who may not see it."""


def job_label(job_id: str, name: str | None, detail: str = "") -> str:
    """Return a job in a sentence: its name, with the id and any detail behind it."""
    if not name:
        return f"job {job_id} ({detail})" if detail else f"job {job_id}"
    return f"“{name}” ({job_id}, {detail})" if detail else f"“{name}” ({job_id})"


def experiment_label(experiment_id: str, name: str) -> str:
    """Return an experiment in a sentence; the word keeps readers from taking it for a job."""
    return f"“{name}” (experiment {experiment_id})"


def describe(failure: Failure) -> str:
    """Return a failure in one line: its message, with the exit code or signal if not in it."""
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
