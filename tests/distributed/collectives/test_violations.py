"""Every fault of a message is detected and named; no wrong sum comes out."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.broken_wires import BrokenWires, Fault, Forger
from support.examples import share_of

from trainhall.distributed.collectives.algorithms.registry import NAMES, all_reduce
from trainhall.distributed.collectives.algorithms.ring import Ring
from trainhall.distributed.collectives.errors import ScheduleViolationError
from trainhall.distributed.collectives.message import Message, seal
from trainhall.distributed.collectives.schedule import Leg, Phase, Receive, Round, Schedule, Send
from trainhall.distributed.collectives.simulate import Wires, simulate


@settings(max_examples=share_of(200))
@given(
    name=st.sampled_from(NAMES),
    world_size=st.integers(2, 9),
    fault=st.sampled_from(Fault),
    elements=st.integers(1, 20),
    position=st.floats(0, 1, exclude_max=True),
    bit=st.integers(0, 1000),
    order=st.randoms(use_true_random=False),
)
def test_every_message_fault_is_detected(
    name: str, world_size: int, fault: Fault, elements: int, position: float, bit: int, order: Any
) -> None:
    schedule = all_reduce(name, world_size, servers=2)
    tensors = [np.full(elements, 3**rank) for rank in range(world_size)]
    messages = simulate(schedule, tensors).messages
    assume(messages > 0)
    wires = BrokenWires(fault, int(position * messages), bit=bit)
    with pytest.raises(ScheduleViolationError):
        simulate(schedule, tensors, wires=wires, choose=order.randrange)


@pytest.mark.parametrize(
    ("fault", "number", "name"),
    [
        # Of a ring of two: messages 0 and 1 are summed up, 2 and 3 are the sums.
        (Fault.DROP, 0, "phase"),
        (Fault.DROP, 3, "missing"),
        (Fault.DUPLICATE, 0, "phase"),
        (Fault.DUPLICATE, 3, "unexpected"),
        (Fault.CORRUPT, 1, "checksum"),
    ],
)
def test_every_fault_has_a_name(fault: Fault, number: int, name: str) -> None:
    with pytest.raises(ScheduleViolationError) as raised:
        simulate(Ring(2), [np.ones(4)] * 2, wires=BrokenWires(fault, number))
    assert raised.value.name == name


@pytest.mark.parametrize(
    ("claims", "name"),
    [
        ({"source": 2}, "source"),
        ({"step": 6}, "step"),
        ({"phase": Phase.BROADCAST}, "phase"),
        ({"round": 9}, "round"),
        ({"chunks": range(2, 3)}, "chunk"),
        ({"segment": 1}, "segment"),
    ],
)
def test_violation_names_the_first_fault(claims: dict[str, Any], name: str) -> None:
    with pytest.raises(
        ScheduleViolationError, match=rf"^{name}: expected chunk \d of step 7, round 0"
    ) as raised:
        simulate(Ring(3), [np.ones(6)] * 3, step=7, wires=Forger(**claims))
    assert raised.value.name == name


def test_message_of_another_length_is_named() -> None:
    class Cutting(Wires):
        def send(self, source: int, destination: int, message: Message) -> None:
            self.deliver(source, destination, seal(message.header, message.payload[:1]))

    with pytest.raises(ScheduleViolationError, match=r"^length: .* got 1 for 2$"):
        simulate(Ring(2), [np.ones(4)] * 2, wires=Cutting())


@dataclass(frozen=True)
class Listed(Schedule):
    """Any rounds at all."""

    algorithm = "listed"
    by_rank: tuple[tuple[Round, ...], ...] = ()

    @property
    def chunks(self) -> int:
        return 1

    def rounds(self, rank: int) -> Iterator[Round]:
        yield from self.by_rank[rank]

    def legs(self) -> Iterator[Leg]:
        return iter(())


def test_deadlocked_schedule_is_reported() -> None:
    def waits(peer: int) -> Round:
        return Round(1, Phase.REDUCE, receive=Receive(peer, range(1), add=True))

    circle = Listed(3, ((waits(1),), (waits(2),), (waits(0),)))
    with pytest.raises(
        ScheduleViolationError, match=r"waits for chunk 0 of round 1 \(reduce\) from rank"
    ):
        simulate(circle, [np.ones(2)] * 3)


def test_violation_names_a_superfluous_message() -> None:
    spam = Listed(2, ((Round(0, Phase.REDUCE, Send(1, range(1))),), ()))
    with pytest.raises(
        ScheduleViolationError, match=r"rank 1 is done, and has another message: chunk 0"
    ) as raised:
        simulate(spam, [np.ones(2)] * 2)
    assert raised.value.name == "unexpected"
