"""Losses and gradients that are no numbers, which end a job."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trainhall.training.optim.precision import tolerated_steps
from trainhall.training.spec import Precision


class NonFiniteLossError(RuntimeError):
    """Loss or gradient are no numbers any more: what is trained from there on is worth nothing."""


@dataclass(frozen=True)
class NotFinite:
    """A step whose loss, or whose gradient's norm, is no number."""

    step: int
    loss: float
    norm: float
    in_a_row: int
    """Such steps, this one the last."""

    def message(self, saved: int) -> str:
        """Describe the value, the newest checkpoint, and what to do.

        Args:
            saved: step of the newest checkpoint before these steps; 0: there is none.
        """
        in_loss = not math.isfinite(self.loss)
        what = f"the loss is {self.loss}" if in_loss else f"the norm of the gradient is {self.norm}"
        text = f"{what} at step {self.step}"
        if self.in_a_row > 1:
            text += f"; {self.in_a_row} steps in a row were left out"
        if in_loss:
            advice = "lower training.learning_rate, or set training.gradient_clip"
        else:
            advice = (
                "lower training.learning_rate, or look in the loss for what has no derivative "
                "there: the root or the norm of zeros, a division by zero in the branch that "
                "`where` does not select"
            )
            if self.in_a_row > 1:
                advice += "; training.precision bf16 has no loss scale"
        newest = f"of step {saved}" if saved else "none"
        return f"{text}; the newest checkpoint before it is {newest}; {advice}"


class NonFiniteGuard:
    """Looks at the job's losses and gradients, step by step; all ranks see the same.

    A gradient that is no number makes the weights of its step none, and the loss of the next one.
    """

    def __init__(self, precision: Precision) -> None:
        self._tolerated = tolerated_steps(precision)
        self.in_a_row = 0
        """The newest steps whose numbers are none."""
        self.first_skipped: NotFinite | None = None
        """The first step that was left out though its loss was no number. That a gradient overflows
        is how the loss scale is found."""
        self.warned = False
        """The job's events mention `first_skipped`."""
        self.too_many: NotFinite | None = None
        """The step with which there were too many in a row: nothing after it is of any worth."""

    def check(self, first: int, losses: Sequence[float], norms: Sequence[float]) -> None:
        """Check steps from `first` on."""
        for step, (loss, norm) in enumerate(zip(losses, norms, strict=True), start=first):
            if math.isfinite(loss) and math.isfinite(norm):
                self.in_a_row = 0
                continue
            self.in_a_row += 1
            found = NotFinite(step, loss, norm, self.in_a_row)
            if self.in_a_row > self._tolerated:
                self.too_many = self.too_many or found
            elif not math.isfinite(loss):
                self.first_skipped = self.first_skipped or found
