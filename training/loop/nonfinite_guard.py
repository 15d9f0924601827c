"""Losses and gradients that are not finite, which end a job."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trainhall.training.optim.precision import tolerated_steps
from trainhall.training.spec import Precision


class NonFiniteLossError(RuntimeError):
    """The loss or the gradient is not finite: what is trained from there on is worthless."""


@dataclass(frozen=True)
class NotFinite:
    """A step whose loss, or whose gradient's norm, is not finite."""

    step: int
    loss: float
    norm: float
    in_a_row: int
    """The number of such steps up to this one."""

    def message(self, saved: int) -> str:
        """Describe the value, the newest checkpoint, and what to do.

        Args:
            saved: step of the newest checkpoint before these steps; 0: there is none.
        """
        in_loss = not math.isfinite(self.loss)
        what = f"the loss is {self.loss}" if in_loss else f"the norm of the gradient is {self.norm}"
        text = f"{what} at step {self.step}"
        if self.in_a_row > 1:
            text += f"; {self.in_a_row} steps in a row were skipped"
        if in_loss:
            advice = "lower training.learning_rate, or set training.gradient_clip"
        else:
            advice = (
                "lower training.learning_rate, or check the loss for operations without a "
                "derivative: the root or the norm of zero, a division by zero in the branch that "
                "`where` does not select"
            )
            if self.in_a_row > 1:
                advice += "; or set training.precision to bf16, which needs no loss scale"
        newest = f"the newest checkpoint before it is of step {saved}"
        return f"{text}; {newest if saved else 'there is no checkpoint before it'}; {advice}"


class NonFiniteGuard:
    """Checks the job's losses and gradient norms, step by step; all ranks see the same.

    A gradient that is not finite makes its step's weights NaN, and with them the next loss.
    """

    def __init__(self, precision: Precision) -> None:
        self._tolerated = tolerated_steps(precision)
        self.in_a_row = 0
        """The number of newest steps that are not finite."""
        self.first_skipped: NotFinite | None = None
        """The first step that was skipped for its loss. A gradient that overflows is no news: that
        is how the loss scale is found."""
        self.warned = False
        """The job's events mention `first_skipped`."""
        self.too_many: NotFinite | None = None
        """The step with which there were too many in a row."""

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
