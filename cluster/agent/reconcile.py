"""The agent's decisions: a pure function from desired and observed state to actions.

It may be called at any time with the latest `Desired`. Every action is idempotent, so repeated,
reordered or lost messages, or a crash between two actions, lead to the same result.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from trainhall.cluster.wire.protocol import Assignment
from trainhall.training.fencing import FencingToken
from trainhall.training.link.launch import Command
from trainhall.training.link.profiling.messages import ProfileRequest
from trainhall.training.link.status import Outcome

Goal = Literal["run", "pause", "stop"]

COMMANDS: dict[Goal, Command] = {
    "run": Command.RUN,
    "pause": Command.PAUSE,
    "stop": Command.STOP,
}


class Stage(Enum):
    PLANNING = "planning"
    """The job's strategy is being planned, or was and the coordinator has yet to take it up."""
    PREPARING = "preparing"
    """The agent fetches what the attempt starts from; there is no folder yet."""
    READY = "ready"
    """The folder exists, and no shim has started in it."""
    LIVE = "live"
    """A shim runs."""
    ENDED = "ended"
    """No process is left."""


@dataclass(frozen=True)
class ObservedAttempt:
    """Observed state of one attempt on this host."""

    stage: Stage
    asked: Command = Command.RUN
    """The highest command that the shim took up."""
    shipped: bool = False
    """Nothing of it is left to ship."""
    final_command: Command = Command.RUN
    """Command that an agent which is about to end gives it."""
    gradients: int = 0
    """The newest request for gradients that this agent has passed on to its ranks."""
    profile: int = 0
    """The same of requests for a profile."""


@dataclass(frozen=True)
class DesiredAttempt:
    """Desired state of one attempt on this host."""

    goal: Goal
    waits: bool = False
    """The ranks' meeting place is not known yet."""
    plans: bool = False
    """True if this host plans the job's strategy first."""
    gradients: int = 0
    """A request for the gradients of a step that waits for its answer; 0: there is none."""
    profile: ProfileRequest | None = None
    """A profile that was asked for, and has not ended."""
    in_place: bool = False
    """True if processes of an earlier generation of the attempt continue as this one."""
    joined: int | None = None
    """`Assignment.joined`."""
    leaves: bool = False
    """True if this host has no rank in it any more: its processes leave."""

    @classmethod
    def of(cls, assignment: Assignment) -> "DesiredAttempt":
        launch = assignment.launch
        return cls(
            assignment.goal,
            waits=bool(launch.ranks) and launch.node_rank > 0 and launch.rendezvous is None,
            plans=launch.planning is not None,
            gradients=assignment.gradients,
            profile=assignment.profile,
            in_place=launch.in_place,
            joined=assignment.joined,
            leaves=not launch.ranks,
        )

    def counts(self, earlier: FencingToken) -> bool:
        """Return whether the coordinator takes what ended here as an earlier generation for the end
        of this one: another process under this one would run beside what comes after it."""
        return self.joined is not None and earlier.generation >= self.joined


@dataclass(frozen=True)
class _OnAttempt:
    token: FencingToken


class Plan(_OnAttempt):
    pass


class Prepare(_OnAttempt):
    pass


class Start(_OnAttempt):
    """Start a shim in the attempt's folder. Two of them do no harm: the first takes the folder."""


@dataclass(frozen=True)
class SendCommand(_OnAttempt):
    command: Command


@dataclass(frozen=True)
class RequestGradients(_OnAttempt):
    """Have its ranks report the gradients of a step."""

    gradients: int


@dataclass(frozen=True)
class RequestProfile(_OnAttempt):
    """Have its ranks profile their next steps."""

    request: ProfileRequest


@dataclass(frozen=True)
class ReportNotStarted(_OnAttempt):
    """Nothing was started, and nothing will be: say how that ends."""

    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True)
class Regroup(_OnAttempt):
    """Have running processes continue as a later generation of their attempt."""

    onto: FencingToken


@dataclass(frozen=True)
class EndAsGeneration(_OnAttempt):
    """Count an end before the later generation was taken up as the end of that generation."""

    onto: FencingToken


class CleanUp(_OnAttempt):
    """Remove all traces."""


Action = (
    Plan
    | Prepare
    | Start
    | SendCommand
    | RequestGradients
    | RequestProfile
    | Regroup
    | EndAsGeneration
    | ReportNotStarted
    | CleanUp
)


def decide(
    desired: Mapping[FencingToken, DesiredAttempt] | None,
    found: Mapping[FencingToken, ObservedAttempt],
    launched: Mapping[str, FencingToken],
    *,
    agent_ends: bool = False,
) -> list[Action]:
    """Return the actions that lead from the observed to the desired state.

    Args:
        desired: None while nothing was received from the coordinator: then nothing changes.
        launched: the newest token launched here of each job. An older one, or one without a folder,
            is never launched again.
        agent_ends: this agent is about to end. It starts nothing, and forgets only attempts whose
            end the coordinator has acknowledged: the next agent finds the rest.
    """
    actions: list[Action] = []
    if agent_ends:
        actions += [
            SendCommand(t, s.final_command) for t, s in found.items() if _needs_final_command(s)
        ]
    if desired is None:
        return actions
    for token, wanted in desired.items():
        if not (agent_ends and wanted.goal == "run"):
            actions += _converge(token, wanted, found, launched)
    regrouping = {
        action.token for action in actions if isinstance(action, Regroup | EndAsGeneration)
    }
    for token, state in found.items():
        if (
            token not in desired
            and token not in regrouping
            and not _awaits_next_generation(token, state, desired)
        ):
            actions += _wind_down(token, state)
    return actions


def _awaits_next_generation(
    token: FencingToken, state: ObservedAttempt, desired: Mapping[FencingToken, DesiredAttempt]
) -> bool:
    """Return whether it runs on until a later generation of it can be started here."""
    return state.stage is Stage.LIVE and any(
        wanted.in_place and wanted.goal != "stop" and _is_earlier(token, other)
        for other, wanted in desired.items()
    )


def _is_earlier(token: FencingToken, other: FencingToken) -> bool:
    """Return whether `token` is an earlier generation of the same attempt as `other`."""
    return token[:2] == other[:2] and token.generation < other.generation


def _needs_final_command(state: ObservedAttempt) -> bool:
    return state.stage is Stage.LIVE and state.asked < state.final_command


def _converge(
    token: FencingToken,
    wanted: DesiredAttempt,
    found: Mapping[FencingToken, ObservedAttempt],
    launched: Mapping[str, FencingToken],
) -> list[Action]:
    state = found.get(token)
    command = COMMANDS[wanted.goal]
    if state is None and wanted.in_place:
        following = _follow_earlier(token, wanted, found, launched)
        if following is not None:
            return following
    if state is None or state.stage in (Stage.PLANNING, Stage.PREPARING, Stage.READY):
        if command is not Command.RUN:
            return [ReportNotStarted(token, _unstarted_outcome(command))]
        if state is None:
            return _begin(token, wanted, found, launched)
        if state.stage is Stage.PLANNING:
            return [] if wanted.plans else [Prepare(token)]
        return [Start(token)] if state.stage is Stage.READY else []
    if state.stage is not Stage.LIVE:
        return []
    if state.asked < command:
        return [SendCommand(token, command)]
    requests: list[Action] = []
    if state.gradients < wanted.gradients:
        requests.append(RequestGradients(token, wanted.gradients))
    if wanted.profile is not None and state.profile < wanted.profile.number:
        requests.append(RequestProfile(token, wanted.profile))
    return requests


def _follow_earlier(
    token: FencingToken,
    wanted: DesiredAttempt,
    found: Mapping[FencingToken, ObservedAttempt],
    launched: Mapping[str, FencingToken],
) -> list[Action] | None:
    """Turn an earlier generation of an attempt into this one; None if there is none."""
    earlier = [other for other in found if _is_earlier(other, token)]
    for other in earlier:
        if found[other].stage is Stage.LIVE:
            ends = Command.STOP in (COMMANDS[wanted.goal], found[other].asked)
            return [] if ends or wanted.waits else [Regroup(other, token)]
    newest = max(earlier, default=None)
    if newest is None or found[newest].stage is not Stage.ENDED:
        return None
    counts = wanted.counts(newest) or _was_launched(token, launched)
    return [EndAsGeneration(newest, token)] if counts else None


def _begin(
    token: FencingToken,
    wanted: DesiredAttempt,
    found: Mapping[FencingToken, ObservedAttempt],
    launched: Mapping[str, FencingToken],
) -> list[Action]:
    if wanted.leaves:
        return [ReportNotStarted(token, Outcome.STOPPED)]
    if _was_launched(token, launched):
        reason = "this attempt already ended on this host, or a newer one was launched here"
        return [ReportNotStarted(token, Outcome.FAILED, reason)]
    # Its devices are free once the older attempt of the job, which is not desired any more, ended.
    waits = any(
        other.job_id == token.job_id and state.stage is not Stage.ENDED
        for other, state in found.items()
    )
    if waits or wanted.waits:
        return []
    return [Plan(token) if wanted.plans else Prepare(token)]


def _was_launched(token: FencingToken, launched: Mapping[str, FencingToken]) -> bool:
    """Return whether it, or a newer one of its job, was launched here."""
    newest = launched.get(token.job_id)
    return newest is not None and token <= newest


def _unstarted_outcome(command: Command) -> Outcome:
    return Outcome.PAUSED if command is Command.PAUSE else Outcome.STOPPED


def _wind_down(token: FencingToken, state: ObservedAttempt) -> list[Action]:
    match state.stage:
        case Stage.LIVE:
            return [SendCommand(token, Command.STOP)] if state.asked < Command.STOP else []
        case Stage.ENDED:
            return [CleanUp(token)] if state.shipped else []
        case Stage.PLANNING | Stage.PREPARING | Stage.READY:
            return [CleanUp(token)]
