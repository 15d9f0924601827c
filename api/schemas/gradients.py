"""The gradients of a job by parameter, as the API shows them."""

from trainhall.api.schemas.base import MetricValue, Schema, Time
from trainhall.cluster.jobs.gradients import Remark


class GradientRequests(Schema):
    """State of a job's requests for gradients."""

    asked: int
    """Number of the newest request; 0: there was none."""
    answered: int
    """Number of the newest one that was answered. Less than `asked`: a step is on its way."""


class GradientStep(Schema):
    """The gradients of one step."""

    attempt: int
    step: int
    time: Time
    request: int
    """Number of the request that it answers; 0: the job's spec wants it."""
    has_histograms: bool
    norms: list[MetricValue]
    """L2 norm of the gradient averaged over the ranks, before clipping, in the order of `names`;
    null where this step reported nothing for that name. NaN and infinities are strings."""
    largest: list[MetricValue]
    """The largest L2 norm that any rank had accumulated by itself, before averaging."""


class GradientHistory(GradientRequests):
    """Captured gradients of a job."""

    names: list[str]
    """Names of the model's trained parameters, in its order; of modules, if there are too many."""
    remarks: list[Remark | None]
    """Anomaly of the newest gradient of each. `not finite`: it holds NaN or infinity.
    `exploding`: more than ten times its median at three or more steps before. `vanishing`: less
    than a millionth of the largest of its step. `dead`: zero, the loss does not depend on it."""
    steps: list[GradientStep]


class GradientHistogram(Schema):
    """Distribution of the magnitudes in a gradient.

    Bin i counts the numbers from 2^(lowest_exponent + i) to below twice that.
    """

    first: int
    """The bin of the first of `counts`; those before it and behind them are empty."""
    counts: list[int]
    zeros: int
    not_finite: int


class GradientEntry(Schema):
    """One parameter at one step."""

    name: str
    norm: MetricValue
    largest: MetricValue
    histogram: GradientHistogram | None
    """Null where the step was not captured by request, or where newer ones have taken its place."""


class Gradients(Schema):
    """The gradients of one step, parameter by parameter."""

    attempt: int
    step: int
    time: Time
    lowest_exponent: int
    entries: list[GradientEntry]
