"""The agent's decisions, against a model of a host on which anything may happen at any time."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import share_of

from trainhall.cluster.agent.reconcile import (
    COMMANDS,
    Action,
    CleanUp,
    DesiredAttempt,
    EndAsGeneration,
    Goal,
    ObservedAttempt,
    Plan,
    Prepare,
    Regroup,
    ReportNotStarted,
    RequestGradients,
    RequestProfile,
    SendCommand,
    Stage,
    Start,
    decide,
)
from trainhall.training.fencing import FencingToken
from trainhall.training.link.launch import Command
from trainhall.training.link.profiling.messages import ProfileRequest
from trainhall.training.link.status import Outcome

TOKENS: list[FencingToken] = [
    FencingToken("a", 1, 1),
    FencingToken("a", 1, 2),
    FencingToken("a", 2, 1),
    FencingToken("b", 1, 1),
]
Desired = dict[FencingToken, Goal]


@dataclass
class Body:
    """One attempt as the host has it."""

    stage: Stage
    asked: Command = Command.RUN
    shipped: bool = False
    outcome: Outcome | None = None


@dataclass
class Host:
    """What actions do, and what happens by itself; a crash of the agent keeps what is on disk."""

    attempts: dict[FencingToken, Body] = field(default_factory=dict)
    launched: dict[str, FencingToken] = field(default_factory=dict)
    starts: list[FencingToken] = field(default_factory=list)
    final_command: Command = Command.RUN
    """What an agent that was told to end wants of all that runs."""

    def reconcile(self, desired: Desired | None) -> list[Action]:
        wanted = None if desired is None else {t: DesiredAttempt(g) for t, g in desired.items()}
        found = {
            t: ObservedAttempt(b.stage, b.asked, b.shipped, self.final_command)
            for t, b in self.attempts.items()
        }
        ends = self.final_command is not Command.RUN
        actions = decide(wanted, found, self.launched, agent_ends=ends)
        for action in actions:
            self._apply(action)
        if ends:
            assert not [a for a in actions if isinstance(a, Prepare | Start)], "it began something"
            received = desired or {}
            for action in actions:
                if isinstance(action, CleanUp):
                    assert desired is not None, "forgotten before anybody heard of it"
                    assert action.token not in received
            for body in self.attempts.values():
                assert body.stage is not Stage.LIVE or body.asked >= self.final_command
        return actions

    def _apply(self, action: Action) -> None:
        match action:
            case Prepare(token):
                assert token not in self.attempts
                self.attempts[token] = Body(Stage.PREPARING)
            case Start(token):
                assert self.attempts[token].stage is Stage.READY
                newest = self.launched.get(token.job_id, token)
                self.launched[token.job_id] = max(token, newest)
                self.starts.append(token)
                self.attempts[token].stage = Stage.LIVE
            case SendCommand(token, command):
                assert self.attempts[token].stage is Stage.LIVE
                self.attempts[token].asked = max(self.attempts[token].asked, command)
            case ReportNotStarted(token, outcome, _):
                self.attempts[token] = Body(Stage.ENDED, shipped=True, outcome=outcome)
            case CleanUp(token):
                del self.attempts[token]

    def crash(self) -> None:
        """What the agent only remembered is gone; folders, shims and what was launched stay."""
        self.final_command = Command.RUN
        for token, body in list(self.attempts.items()):
            newest = self.launched.get(token.job_id)
            never_launched = newest is None or token > newest
            if body.stage is not Stage.READY and (body.stage is Stage.PREPARING or never_launched):
                del self.attempts[token]

    def advance(self, token: FencingToken) -> None:
        """The next thing that happens to an attempt by itself."""
        body = self.attempts.get(token)
        if body is None:
            return
        if body.stage is Stage.PREPARING:
            body.stage = Stage.READY
        elif body.stage is Stage.LIVE:
            body.stage = Stage.ENDED
        elif body.stage is Stage.ENDED:
            body.shipped = True


desired = st.dictionaries(st.sampled_from(TOKENS), st.sampled_from(list(COMMANDS)), max_size=3)
happenings = st.lists(
    st.one_of(
        st.tuples(st.just("message"), desired),
        st.tuples(st.just("again"), st.integers(0, 5)),
        st.tuples(st.just("go on"), st.sampled_from(TOKENS)),
        st.tuples(st.just("look"), st.none()),
        st.tuples(st.just("crash"), st.none()),
        st.tuples(st.just("end"), st.sampled_from([Command.PAUSE, Command.STOP])),
    ),
    max_size=40,
)


@given(happenings, desired)
@settings(max_examples=share_of(400))
def test_reconcile_starts_once_and_follows_latest_command(
    story: list[tuple[str, object]], final: Desired
) -> None:
    host = Host()
    messages: list[Desired] = []
    current: Desired | None = None
    for what, value in story:
        if what == "message":
            current = value  # type: ignore[assignment]
            messages.append(value)  # type: ignore[arg-type]
        elif what == "again" and messages:
            # An old message, repeated or out of order.
            current = messages[int(value) % len(messages)]  # type: ignore[call-overload]
        elif what == "go on":
            host.advance(value)  # type: ignore[arg-type]
        elif what == "crash":
            host.crash()
            current = None
        elif what == "end":
            host.final_command = max(host.final_command, Command(value))  # type: ignore[arg-type]
        host.reconcile(current)
        assert len(host.starts) == len(set(host.starts)), "an attempt was launched twice"

    if host.final_command is not Command.RUN:
        host.crash()
    for _ in range(6):
        host.reconcile(final)
        for token in list(host.attempts):
            if host.attempts[token].stage is not Stage.LIVE or token not in final:
                host.advance(token)
    host.reconcile(final)
    assert host.reconcile(final) == [] or not _settled(host, final)
    for token, body in host.attempts.items():
        assert token in final, "what is not desired goes"
        if body.stage is Stage.LIVE:
            assert body.asked >= COMMANDS[final[token]]
    for token, goal in final.items():
        if goal == "run" and not _rivals(token, final):
            assert token in host.attempts, "what is desired runs, or says why not"
    assert len(host.starts) == len(set(host.starts))


def _rivals(token: FencingToken, final: Desired) -> bool:
    """Other attempts of the job are desired too, which no coordinator does for long."""
    return any(other != token and other[0] == token[0] for other in final)


def _settled(host: Host, final: Desired) -> bool:
    return all(not _rivals(token, final) for token in final)


def test_silence_changes_nothing() -> None:
    found = {
        FencingToken("a", 1, 1): ObservedAttempt(Stage.LIVE),
        FencingToken("b", 1, 1): ObservedAttempt(Stage.ENDED, shipped=True),
    }
    assert decide(None, found, {}) == []


def test_reconcile_keeps_unlisted_attempt_until_shipped() -> None:
    token = FencingToken("a", 1, 1)
    assert decide({}, {token: ObservedAttempt(Stage.LIVE)}, {}) == [
        SendCommand(token, Command.STOP)
    ]
    assert decide({}, {token: ObservedAttempt(Stage.LIVE, Command.STOP)}, {}) == []
    assert decide({}, {token: ObservedAttempt(Stage.ENDED)}, {}) == []
    assert decide({}, {token: ObservedAttempt(Stage.ENDED, shipped=True)}, {}) == [CleanUp(token)]


def test_further_host_waits_for_the_meeting_place() -> None:
    token = FencingToken("a", 1, 1)
    assert decide({token: DesiredAttempt("run", waits=True)}, {}, {}) == []
    assert decide({token: DesiredAttempt("run")}, {}, {}) == [Prepare(token)]
    # It never began: that is told, so that nobody waits for it.
    assert decide({token: DesiredAttempt("stop", waits=True)}, {}, {}) == [
        ReportNotStarted(token, Outcome.STOPPED)
    ]


def test_reconcile_waits_for_devices_of_last_attempt() -> None:
    old, new = FencingToken("a", 1, 1), FencingToken("a", 2, 1)
    found = {old: ObservedAttempt(Stage.LIVE, Command.STOP)}
    assert decide({new: DesiredAttempt("run")}, found, {"a": old}) == []
    found = {old: ObservedAttempt(Stage.ENDED)}
    assert decide({new: DesiredAttempt("run")}, found, {"a": old}) == [Prepare(new)]


def test_reconcile_forwards_gradient_requests_once() -> None:
    token = FencingToken("a", 1, 1)
    wanted = {token: DesiredAttempt("run", gradients=2)}
    assert decide(wanted, {token: ObservedAttempt(Stage.LIVE)}, {}) == [RequestGradients(token, 2)]
    assert decide(wanted, {token: ObservedAttempt(Stage.LIVE, gradients=2)}, {}) == []
    assert decide(wanted, {token: ObservedAttempt(Stage.PREPARING)}, {}) == []
    assert decide(wanted, {token: ObservedAttempt(Stage.ENDED)}, {}) == []
    assert (
        decide(
            {token: DesiredAttempt("run")}, {token: ObservedAttempt(Stage.LIVE, gradients=2)}, {}
        )
        == []
    )
    pausing = {token: DesiredAttempt("pause", gradients=2)}
    assert decide(pausing, {token: ObservedAttempt(Stage.LIVE)}, {}) == [
        SendCommand(token, Command.PAUSE)
    ]


def test_reconcile_forwards_each_profile_once() -> None:
    token, request = FencingToken("a", 1, 1), ProfileRequest(number=2, steps=5, ranks=[0])
    wanted = {token: DesiredAttempt("run", profile=request)}
    assert decide(wanted, {token: ObservedAttempt(Stage.LIVE)}, {}) == [
        RequestProfile(token, request)
    ]
    assert decide(wanted, {token: ObservedAttempt(Stage.LIVE, profile=2)}, {}) == []
    assert decide(wanted, {token: ObservedAttempt(Stage.PREPARING)}, {}) == []


def test_strategy_is_planned_before_anything_is_prepared() -> None:
    token = TOKENS[0]
    plans = {token: DesiredAttempt("run", plans=True)}
    assert decide(plans, {}, {}) == [Plan(token)]
    planning = {token: ObservedAttempt(Stage.PLANNING)}
    assert decide(plans, planning, {}) == [], "it waits until the coordinator has taken it up"
    assert decide({token: DesiredAttempt("run")}, planning, {}) == [Prepare(token)]
    assert decide({token: DesiredAttempt("run")}, {}, {}) == [Prepare(token)], (
        "an earlier agent planned"
    )
    assert decide({token: DesiredAttempt("run", waits=True)}, {}, {}) == [], "another host plans"


def test_reconcile_pauses_stops_and_withdraws_planning() -> None:
    token = TOKENS[0]
    planning = {token: ObservedAttempt(Stage.PLANNING)}
    for goal, outcome in (("pause", Outcome.PAUSED), ("stop", Outcome.STOPPED)):
        wanted = {token: DesiredAttempt(goal, plans=True)}  # type: ignore[arg-type]
        assert decide(wanted, planning, {}) == [ReportNotStarted(token, outcome)]
    assert decide({}, planning, {}) == [CleanUp(token)]
    assert decide({token: DesiredAttempt("run", plans=True)}, {}, {}, agent_ends=True) == []


EARLIER, LATER = FencingToken("a", 1, 2), FencingToken("a", 1, 4)


def test_reconcile_regroups_a_running_attempt() -> None:
    wanted = {LATER: DesiredAttempt("run", in_place=True)}
    live = {EARLIER: ObservedAttempt(Stage.LIVE)}
    assert decide(wanted, live, {"a": EARLIER}) == [Regroup(EARLIER, LATER)]
    assert decide(wanted, {LATER: ObservedAttempt(Stage.LIVE)}, {"a": LATER}) == []


def test_reconcile_waits_for_the_rendezvous_address() -> None:
    live = {EARLIER: ObservedAttempt(Stage.LIVE)}
    assert decide({LATER: DesiredAttempt("run", in_place=True, waits=True)}, live, {}) == []


def test_reconcile_joins_before_pausing() -> None:
    live = {EARLIER: ObservedAttempt(Stage.LIVE)}
    assert decide({LATER: DesiredAttempt("pause", in_place=True)}, live, {}) == [
        Regroup(EARLIER, LATER)
    ]


def test_reconcile_ends_attempt_that_cannot_regroup() -> None:
    live = {EARLIER: ObservedAttempt(Stage.LIVE)}
    for wanted in (DesiredAttempt("stop", in_place=True), DesiredAttempt("run")):
        assert decide({LATER: wanted}, live, {"a": EARLIER}) == [SendCommand(EARLIER, Command.STOP)]
    stopping = {EARLIER: ObservedAttempt(Stage.LIVE, Command.STOP)}
    assert decide({LATER: DesiredAttempt("run", in_place=True)}, stopping, {"a": EARLIER}) == []


def test_reconcile_restarts_a_host_without_processes() -> None:
    ended = {EARLIER: ObservedAttempt(Stage.ENDED, shipped=True)}
    wanted = {LATER: DesiredAttempt("run", in_place=True)}
    assert decide(wanted, ended, {"a": EARLIER}) == [
        Prepare(LATER),
        CleanUp(EARLIER),
    ]


def test_reconcile_counts_early_end_as_later_generation() -> None:
    wanted = {LATER: DesiredAttempt("run", in_place=True)}
    oldest, ended = FencingToken("a", 1, 1), ObservedAttempt(Stage.ENDED, shipped=True)
    found = {oldest: ended, EARLIER: ended}
    assert decide(wanted, found, {"a": LATER}) == [
        EndAsGeneration(EARLIER, LATER),
        CleanUp(oldest),
    ]
    found[EARLIER] = ObservedAttempt(Stage.LIVE)
    assert decide(wanted, found, {"a": LATER}) == [
        Regroup(EARLIER, LATER),
        CleanUp(oldest),
    ]


def test_reconcile_counts_end_as_the_desired_generation() -> None:
    found = {EARLIER: ObservedAttempt(Stage.ENDED, shipped=True)}
    for waits in (False, True):
        wanted = {LATER: DesiredAttempt("run", waits=waits, in_place=True, joined=2)}
        assert decide(wanted, found, {"a": EARLIER}) == [EndAsGeneration(EARLIER, LATER)]


def test_reconcile_restarts_a_host_that_rejoins() -> None:
    wanted = {LATER: DesiredAttempt("run", in_place=True, joined=3)}
    ended = {EARLIER: ObservedAttempt(Stage.ENDED, shipped=True)}
    assert decide(wanted, ended, {"a": EARLIER}) == [
        Prepare(LATER),
        CleanUp(EARLIER),
    ]


def test_reconcile_reports_empty_host_as_left() -> None:
    wanted = {LATER: DesiredAttempt("run", in_place=True, leaves=True)}
    assert decide(wanted, {}, {}) == [ReportNotStarted(LATER, Outcome.STOPPED)]
    live = {EARLIER: ObservedAttempt(Stage.LIVE)}
    assert decide(wanted, live, {}) == [Regroup(EARLIER, LATER)]
