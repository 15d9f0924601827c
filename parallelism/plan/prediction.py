"""From a traced step to figures: memory, communication, time, and which strategy to choose.

The time of a step, with a device's rates (`devices.Rates`):

    compute  = operations / rate
    update   = bytes that the optimizer reads and writes / memory bandwidth
    sent     = bytes / bandwidth + collectives × latency, of which are
    hidden   = gradients and weights that travel while the device computes (ddp, fsdp)
    exposed  = what it must wait for: sums within layers (tensor), what stages hand on (pipeline)
    step     = max(compute, hidden) / (1 − bubble) + exposed + update
"""

from collections.abc import Sequence
from dataclasses import dataclass

from trainhall.parallelism.choose import StrategyConfig
from trainhall.parallelism.degrees import expected_bubble
from trainhall.parallelism.plan.devices import Rates
from trainhall.parallelism.plan.pipeline_trace import PipelineTracer
from trainhall.parallelism.plan.trace import Trace, Tracing

_UPDATE_PASSES = 7
"""AdamW reads weights, gradients and two averages, and writes all but the gradients."""
_UNSCALE_PASSES = 2
"""To divide gradients by the scale of the loss, fp16 reads and writes them once more."""
_SLOWER = 1.03
"""Strategies whose steps take so much longer at most count as equally fast."""
_SIMPLICITY = ("ddp", "fsdp", "tensor", "pipeline", "parameter_server", "model")


@dataclass(frozen=True)
class Prediction:
    """The prediction of one strategy and mesh, on the rank that needs the most memory."""

    config: StrategyConfig
    memory: dict[str, int]
    """Peak bytes of a device by kind."""
    communication: dict[str, int]
    """Bytes that a rank sends in a step, by collective."""
    flops: int
    """Operations of a rank in a step."""
    bubble: float
    """The share of a step in which the ranks of a pipeline wait for others."""
    seconds: float
    """Duration of a step."""

    @property
    def peak(self) -> int:
        return sum(self.memory.values())


def predict(tracing: Tracing, config: StrategyConfig, rates: Rates) -> Prediction:
    """Predict the memory and the step time of a strategy and mesh.

    Raises:
        DegreesError: the model does not allow it.
        TraceError: the model cannot be run without values.
    """
    if config.strategy in ("pipeline", "model"):
        traces = PipelineTracer(tracing, config).traces()
    elif config.strategy == "parameter_server":
        traces = tracing.servers(config)
    else:
        traces = [tracing.step(config)]
    bubble = expected_bubble(config.degrees.pipeline, config.microbatches)
    largest = max(traces, key=lambda trace: sum(trace.memory.values()))
    busiest = max(traces, key=lambda trace: trace.flops)
    return Prediction(
        config=config,
        memory={kind: round(number) for kind, number in largest.memory.items()},
        communication={kind: round(number) for kind, number in busiest.sent.items() if number},
        flops=round(busiest.flops),
        bubble=bubble,
        seconds=_seconds(config, busiest, bubble, rates, scales=tracing.subject.scales),
    )


def _seconds(
    config: StrategyConfig, trace: Trace, bubble: float, rates: Rates, *, scales: bool
) -> float:
    compute = trace.flops / rates.flops
    passes = _UPDATE_PASSES + (_UNSCALE_PASSES if scales else 0)
    update = passes * trace.trained / rates.memory
    sent = sum(trace.sent.values()) / rates.network + trace.calls * rates.latency
    hides = config.strategy in ("ddp", "fsdp") and config.degrees.tensor == 1
    hidden, exposed = (sent, 0.0) if hides else (0.0, sent)
    return max(compute, hidden) / (1 - bubble) + exposed + update


def best(predictions: Sequence[Prediction], memory: int | None) -> Prediction | None:
    """Return the fastest that fits; among about as fast ones the simplest and smallest."""
    fitting = [p for p in predictions if memory is None or p.peak <= memory]
    if not fitting:
        return None
    quickest = min(p.seconds for p in fitting)
    close = [p for p in fitting if p.seconds <= quickest * _SLOWER]
    return min(close, key=lambda p: (_SIMPLICITY.index(p.config.strategy), p.seconds, p.peak))
