"""Work that measures one number a step, by which it is known who took the step."""

from collections.abc import Sequence

from trainhall.cluster.simulator.ranks import Fate, Group, Rank, Work

STEP_SECONDS = (0.3, 0.8)


def value_of(attempt: int, generation: int) -> float:
    """Return a measured value: the later their token, the greater."""
    return attempt * 1000.0 + generation


class Counting(Work):
    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self._value = value_of(group.launch.attempt, group.launch.generation)

    @property
    def total(self) -> int:
        return self.group.launch.spec.training.steps or 1

    def wait(self) -> float:
        return self.group.chance.uniform(*STEP_SECONDS)

    def take(self, *, is_due: bool) -> int:
        step, now = self.group.step + 1, self.group.now()
        for rank in self.group.ranks.values():
            if rank.number == 0:
                rank.spool.measure(step, now, self._value)
            elif rank.number == rank.launch.ranks[0].rank:
                rank.spool.measure(step, now, self._value, rank.number)
        return 1

    def fail(self, rank: Rank, fate: Fate) -> int:
        if fate.kind == "killed":
            return -9
        data = {"type": "ValueError", "message": "no"}
        rank.spool.event("failure", data, self.group.now())
        return 1

    def flush_rows(self, source: Rank, steps: Sequence[int]) -> None:
        for step in steps:
            source.spool.measure(step, self.group.now(), self._value)

    def break_off(self, lost: Rank, others: Sequence[Rank]) -> None:
        step, chance = self.group.step, self.group.chance
        how_far = chance.random()
        if how_far < 0.2:  # some of them have got the last sum
            for rank in others:
                rank.step += chance.random() < 0.5
        elif how_far < 0.4 and lost.was_first:
            # All have exchanged what they measured, and rank 0 has not come to write it.
            for rank in others:
                rank.step = rank.reported_step = step + 1
                rank.unsure = [rank.step]
