"""Explains an out-of-memory error: the phase, the amount, and what would fit."""

import re
import traceback

import torch

from trainhall.training.common.units import size_text
from trainhall.training.process.rank_context import RankContext
from trainhall.training.spec import JobSpec
from trainhall.training.spec.plan import PlanPrediction

_GIB = 2**30
_PHASES = (
    ("training/checkpoint/", "a checkpoint was saved"),
    ("training/loop/evaluate.py", "the model was evaluated"),
    ("torch/autograd/", "the backward pass ran"),
    ("torch/optim/", "the optimizer made its state or took its step"),
    ("parallelism/pipelining/batches.py", "a batch was moved to the device"),
    ("torch/nn/modules/", "the forward pass ran"),
    ("parallelism/strategy.py", "the forward pass ran"),
    ("parallelism/pipelining/pipeline.py", "the forward pass ran"),
)
"""By a part of a path that lies on the way to the error; the first one that does counts."""

_AMOUNT = re.compile(r".*?Tried to allocate [\d.]+ \w+")
"""Behind it the allocator counts up what the process holds, in more words than a reason has."""

_TEXTS = ("can't allocate memory", "CUDA error: out of memory", "Cuda failure 2 'out of memory'")


class OutOfMemoryError(RuntimeError):
    """The device, or the host, has not the memory that the job needs."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out. Torch has a class for its allocator on a GPU, only a message
    on a CPU or where CUDA or NCCL fails on its own."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _TEXTS)


def explain_out_of_memory(
    error: MemoryError | RuntimeError, context: RankContext, step: int | None
) -> MemoryError | RuntimeError:
    """Explain an out-of-memory error and what to do; return others as they are.

    Args:
        step: that was under way; None: none was.
    """
    if not is_out_of_memory(error):
        return error
    launch, rank = context.launch, context.environment.rank
    return explained(error, launch.spec, context.device, rank, step, launch.prediction)


def explained(
    error: BaseException,
    spec: JobSpec,
    device: torch.device,
    rank: int,
    step: int | None,
    prediction: PlanPrediction | None = None,
) -> OutOfMemoryError:
    """Return the error with an explanation that helps.

    Args:
        step: the one that was computed; None: training had not begun.
        prediction: of a job whose strategy was planned.
    """
    during = "the model was built" if step is None else phase_of(error)
    at = "" if step is None else f" (step {step})"
    text = f"rank {rank} ran out of memory on {device} while {during}{at}: {_memory_use(device)}"
    return OutOfMemoryError(
        f"{text}{_first_line(error)}. It needs less with {', or '.join(_remedies(spec))}"
        f"{_predicted(prediction)}"
    )


def _predicted(prediction: PlanPrediction | None) -> str:
    """Describe a plan's prediction, and the strategies that it predicted to need less."""
    if prediction is None:
        return ""
    largest = max(prediction.memory, key=lambda kind: prediction.memory[kind])
    text = (
        f". A peak of {size_text(prediction.peak_memory_bytes)} was predicted, of which "
        f"{size_text(prediction.memory[largest])} for {largest}. "
    )
    if not prediction.smaller:
        return f"{text}No other strategy was predicted to need less"
    others = ", ".join(f"{o.summary} {size_text(o.peak_memory_bytes)}" for o in prediction.smaller)
    return f"{text}Less was predicted for {others}"


def phase_of(error: BaseException) -> str:
    """Return the phase, by the files in the traceback."""
    paths = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    for part, phase in _PHASES:
        if any(part in path for path in paths):
            return phase
    return "a step ran"


def _memory_use(device: torch.device) -> str:
    if device.type != "cuda":
        return ""
    peak, total = torch.cuda.max_memory_allocated(device), torch.cuda.mem_get_info(device)[1]
    return f"tensors held at most {peak / _GIB:.1f} of {total / _GIB:.1f} GiB; "


def _first_line(error: BaseException) -> str:
    line = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
    amount = _AMOUNT.match(line)
    return amount.group() if amount else line


def _remedies(spec: JobSpec) -> list[str]:
    """Return settings that need less, the cheapest first."""
    training, parallelism = spec.training, spec.parallelism
    rounds = training.gradient_accumulation
    parts = training.logical_shards if training.reproducible else spec.degrees.samples
    samples = training.global_batch_size // (parts * rounds * spec.microbatches)
    ways = []
    if samples > 1:
        half = next(k for k in range(2, samples + 1) if samples % k == 0)
        ways.append(
            f"training.gradient_accumulation: {rounds * half} ({samples // half} instead of "
            f"{samples} samples at once)"
        )
    if training.activation_checkpointing == "none":
        ways.append("training.activation_checkpointing: full")
    if training.precision == "fp32":
        ways.append("training.precision: bf16")
    if parallelism.strategy in ("ddp", "parameter_server"):
        over = f" over {spec.resources.workers} workers" if spec.resources.workers > 1 else ""
        plain = "training.reproducible: false and " if training.reproducible else ""
        ways.append(
            f"{plain}parallelism.strategy: fsdp{over or ' and more workers'}, which divides "
            "weights, gradients and optimizer state"
        )
    else:
        ways.append("more workers (resources.workers)")
    return ways
