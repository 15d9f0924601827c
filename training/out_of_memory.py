"""What to say when a rank's memory is not enough: during which phase, how much, what would fit."""

import traceback

import torch

from trainhall.training.place import Place
from trainhall.training.spec import JobSpec
from trainhall.training.spec.plan import Prediction

_GIB = 2**30
_PHASES = (
    ("training/checkpoint/", "a checkpoint was saved"),
    ("training/evaluate.py", "the model was evaluated"),
    ("torch/autograd/", "the backward pass ran"),
    ("torch/optim/", "the optimizer made its state or took its step"),
    ("training/fused.py", "the optimizer made its state or took its step"),
    ("parallelism/batches.py", "a batch was moved to the device"),
    ("torch/nn/modules/", "the forward pass ran"),
    ("parallelism/strategy.py", "the forward pass ran"),
    ("parallelism/pipeline.py", "the forward pass ran"),
)
"""By a part of a path that lies on the way to the error; the first one that does counts."""

_TEXTS = ("can't allocate memory", "CUDA error: out of memory", "Cuda failure 2 'out of memory'")


class OutOfMemory(RuntimeError):
    """The device, or the host, has not the memory that the job needs."""


def is_out_of_memory(error: BaseException) -> bool:
    """Torch says it by a class where its allocator fails on a GPU, and by a message alone on a CPU
    or where CUDA or NCCL fails by itself."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _TEXTS)


def in_words(
    error: MemoryError | RuntimeError, place: Place, step: int | None
) -> MemoryError | RuntimeError:
    """Of an error for want of memory, what asked for it and what to do; others as they are.

    Args:
        step: that was under way; None: none was.
    """
    if not is_out_of_memory(error):
        return error
    launch, rank = place.launch, place.environment.rank
    return explained(error, launch.spec, place.device, rank, step, launch.prediction)


def explained(
    error: BaseException,
    spec: JobSpec,
    device: torch.device,
    rank: int,
    step: int | None,
    prediction: Prediction | None = None,
) -> OutOfMemory:
    """The error in words that help.

    Args:
        step: the one that was computed; None: training had not begun.
        prediction: of a job whose strategy was planned.
    """
    during = "the model was built" if step is None else phase_of(error)
    at = "" if step is None else f" (step {step})"
    text = f"rank {rank} ran out of memory on {device} while {during}{at}: {_held(device)}"
    return OutOfMemory(
        f"{text}{_first_line(error)}. {_predicted(prediction)}"
        f"It needs less with {', or '.join(_ways(spec))}"
    )


def _predicted(prediction: Prediction | None) -> str:
    """What a plan expected, mostly of what, and which others it found to need less."""
    if prediction is None:
        return ""
    largest = max(prediction.memory, key=lambda kind: prediction.memory[kind])
    told = (
        f"A peak of {_gib(prediction.peak_memory_bytes)} was predicted, of which "
        f"{_gib(prediction.memory[largest])} for {largest}. "
    )
    if not prediction.smaller:
        return f"{told}No other strategy was predicted to need less. "
    others = ", ".join(f"{o.told} {_gib(o.peak_memory_bytes)}" for o in prediction.smaller)
    return f"{told}Less was predicted for {others}. "


def _gib(count: int) -> str:
    return f"{count / _GIB:.2f} GiB"


def phase_of(error: BaseException) -> str:
    """What was going on, by the files on the way to the error."""
    paths = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    for part, phase in _PHASES:
        if any(part in path for path in paths):
            return phase
    return "a step ran"


def _held(device: torch.device) -> str:
    if device.type != "cuda":
        return ""
    peak, total = torch.cuda.max_memory_allocated(device), torch.cuda.mem_get_info(device)[1]
    return f"tensors held at most {peak / _GIB:.1f} of {total / _GIB:.1f} GiB; "


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


def _ways(spec: JobSpec) -> list[str]:
    """Settings that need less, the cheapest first."""
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
