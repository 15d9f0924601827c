"""Wires between simulated ranks that treat one message badly."""

from dataclasses import replace
from enum import StrEnum
from typing import Any

import numpy as np

from trainhall.distributed.collectives.message import Message, seal
from trainhall.distributed.collectives.simulate import Wires


class Fault(StrEnum):
    DROP = "drop"
    DUPLICATE = "duplicate"
    REORDER = "reorder"
    """The next message of the same pair overtakes it; if there is none, it never comes."""
    CORRUPT = "corrupt"


class BrokenWires(Wires):
    """The message of a given number, counted over all ranks, suffers a fault."""

    def __init__(self, fault: Fault, number: int, *, bit: int = 0) -> None:
        super().__init__()
        self.fault = fault
        self._number = number
        self._bit = bit
        self._held: tuple[int, int, Message] | None = None

    def send(self, source: int, destination: int, message: Message) -> None:
        self._number -= 1
        if self._number == -1:
            self._spoil(source, destination, message)
            return
        self.deliver(source, destination, message)
        if self._held and self._held[:2] == (source, destination):
            self.deliver(*self._held)
            self._held = None

    def _spoil(self, source: int, destination: int, message: Message) -> None:
        if self.fault is Fault.DUPLICATE:
            self.deliver(source, destination, message)
            self.deliver(source, destination, message)
        elif self.fault is Fault.REORDER:
            self._held = (source, destination, message)
        elif self.fault is Fault.CORRUPT:
            raw = message.payload.copy().view(np.uint8)
            raw[self._bit // 8 % raw.size] ^= 1 << self._bit % 8
            payload = raw.view(message.payload.dtype)
            self.deliver(source, destination, replace(message, payload=payload))


class Forger(Wires):
    """Every message claims something else, with a checksum that fits: what a wrong schedule on the
    other side would send."""

    def __init__(self, **claims: Any) -> None:
        super().__init__()
        self._claims = claims

    def send(self, source: int, destination: int, message: Message) -> None:
        forged = seal(replace(message.header, **self._claims), message.payload)
        self.deliver(source, destination, forged)
