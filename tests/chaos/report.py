"""What a scenario did to a cluster, what it looked at afterwards, and the figures."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


class ViolatedError(AssertionError):
    """Something that has to hold under every fault did not."""


@dataclass
class Report:
    name: str
    injected: Counter[str] = field(default_factory=Counter)
    checked: Counter[str] = field(default_factory=Counter)
    figures: dict[str, float] = field(default_factory=dict)
    problem: str | None = None
    seconds: float = 0.0
    cut: str | None = None
    """How far it came before its time was over; None: to its end."""

    def cut_short(self, done: int, asked: int) -> None:
        self.cut = f"{done} of {asked} runs, then its time was over"

    def inject(self, fault: str) -> None:
        self.injected[fault] += 1

    def check(self, what: str, holds: object, detail: object = "") -> None:
        """
        Raises:
            Violated: it does not hold.
        """
        if not holds:
            raise ViolatedError(f"{what}: {detail}" if detail != "" else what)
        self.checked[what] += 1

    def figure(self, name: str, value: float) -> None:
        self.figures[name] = round(value, 4)

    def slowest(self, name: str, value: float) -> None:
        self.figure(name, max(value, self.figures.get(name, value)))

    def lines(self) -> list[str]:
        verdict = "ok" if self.problem is None else "FAILED"
        lines = [f"{self.name}: {verdict} ({self.seconds:.0f} s)"]
        lines += [f"  {self.cut}"] * (self.cut is not None)
        for title, counts in (("injected", self.injected), ("checked", self.checked)):
            lines += [f"  {title:<9}{count:>6} x {what}" for what, count in counts.items()]
        lines += [f"  figure   {value:>8,.3f} {name}" for name, value in self.figures.items()]
        if self.problem is not None:
            lines += [f"  {line}" for line in self.problem.splitlines()]
        return lines

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "ok": self.problem is None,
            "seconds": round(self.seconds, 1),
            "cut": self.cut,
            "injected": dict(self.injected),
            "checked": dict(self.checked),
            "figures": self.figures,
            "problem": self.problem,
        }
