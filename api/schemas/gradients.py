"""The gradients of a job by parameter, as the API shows them."""

from trainhall.cluster.jobs.gradient_remarks import Remark
from trainhall.cluster.jobs.gradients import GradientRequests
from trainhall.db.views import MetricValue, Time, View


class GradientStep(View):
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
    """Recorded gradients of a job."""

    names: list[str]
    """Names of the model's trained parameters, in its order; of modules, if there are too many."""
    remarks: list[Remark | None]
    """Anomaly of the newest gradient of each. `not finite`: it holds NaN or infinity.
    `exploding`: more than ten times its median at three or more steps before. `vanishing`: less
    than a millionth of the largest of its step. `dead`: zero, the loss does not depend on it."""
    steps: list[GradientStep]


class GradientHistogram(View):
    """Distribution of the magnitudes in a gradient.

    Bin i counts the numbers from 2^(lowest_exponent + i) to below twice that.
    """

    first: int
    """The bin of the first of `counts`; those before it and behind them are empty."""
    counts: list[int]
    zeros: int
    not_finite: int


class GradientEntry(View):
    """One parameter at one step."""

    name: str
    norm: MetricValue
    largest: MetricValue
    histogram: GradientHistogram | None
    """Null where the step was not recorded on request, or newer ones have replaced it."""


class Gradients(View):
    """The gradients of one step, parameter by parameter."""

    attempt: int
    step: int
    time: Time
    lowest_exponent: int
    entries: list[GradientEntry]
