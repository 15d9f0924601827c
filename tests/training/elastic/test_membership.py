"""When a rank leaves its group by itself: a newer one waits, and this one takes no step."""

from pathlib import Path
from threading import Event

import pytest
import torch
from support.cluster.agent_process import launch_of

from trainhall.distributed import broken
from trainhall.training.elastic.membership import Membership
from trainhall.training.link.control import Control
from trainhall.training.link.folder import AttemptFolder, replace_json
from trainhall.training.link.launch import Launch


class Looks(Event):
    """Lets a thread check a given number of times, without waiting."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._left = count

    def wait(self, timeout: float | None = None) -> bool:
        self._left -= 1
        return self._left < 0


class Rank:
    """A rank in a group, which takes no step by itself."""

    def __init__(self, folder: AttemptFolder, launch: Launch) -> None:
        self.folder, self.launch = folder, launch
        self.control = Control(folder.control, create=True)
        self.membership = Membership(launch, launch.ranks[0], folder, torch.device("cpu"))

    def update_control(self, **changes: object) -> None:
        """Publish a newer launch."""
        newer = self.launch.model_copy(update=changes)
        replace_json(self.folder.group(newer.generation), newer)
        self.control.regroup(newer.generation)


@pytest.fixture
def rank(tmp_path: Path) -> Rank:
    folder = AttemptFolder(tmp_path)
    return Rank(folder, launch_of({"task": {"name": "synthetic"}, "resources": {"workers": 2}}))


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each time that the rank broke its group off."""
    times: list[str] = []
    monkeypatch.setattr(broken, "break_off", lambda: times.append("left"))
    return times


def test_membership_leaves_a_broken_group(rank: Rank, left: list[str]) -> None:
    """Gloo may have lost the message by which the rank would notice."""
    rank.update_control(generation=2, broken=1)
    rank.membership._watch(Looks(4))
    assert left == ["left"]
    with pytest.raises(RuntimeError, match="must regroup"):
        rank.membership.confirm()


def test_later_launch_knows_who_was_lost_before(rank: Rank, left: list[str]) -> None:
    rank.update_control(generation=4, broken=2)
    rank.membership._watch(Looks(1))
    assert left == ["left"]


def test_membership_grows_after_a_common_step(rank: Rank, left: list[str]) -> None:
    rank.update_control(generation=3, broken=0)
    rank.membership._watch(Looks(4))
    assert left == []
    rank.membership.confirm()


def test_membership_left_meanwhile_breaks_nothing(
    rank: Rank, left: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By then the rank may be in its next group."""
    looks = Looks(4)

    def leave() -> bool:
        looks.set()
        return True

    monkeypatch.setattr(rank.membership, "has_lost", leave)
    rank.update_control(generation=2, broken=1)
    rank.membership._watch(looks)
    assert left == []
    rank.membership.confirm()


def test_membership_stays_without_newer_launch(rank: Rank, left: list[str]) -> None:
    rank.membership._watch(Looks(4))
    assert left == []


def test_membership_does_not_interrupt_progress(rank: Rank, left: list[str]) -> None:
    """Its host is unreachable for the coordinator alone, and its own group is whole."""

    class Stepping(Looks):
        def wait(self, timeout: float | None = None) -> bool:
            rank.membership.stepped()
            return super().wait(timeout)

    rank.update_control(generation=2, broken=1)
    rank.membership._watch(Stepping(4))
    assert left == []
