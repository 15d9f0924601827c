"""Declares how a model may be divided: beside the model, without torch, so that a job is checked
early."""

from dataclasses import dataclass

from trainhall.parallelism.degrees import STAGES_PER_RANK, Degrees, DegreesError, Schedule

_INSTEAD = (
    "choose ddp or fsdp, or have a task of your own declare them in `declaration()` "
    "(docs/strategies.md#models)"
)

Layer = tuple[str, ...]
"""Names of modules (as in `nn.Module.get_submodule`) that run one after the other."""


@dataclass(frozen=True)
class Split:
    """Linear layers that several ranks compute in parts, with one sum at the end."""

    column: str
    """A `nn.Linear` whose outputs are divided, a contiguous part for each rank."""
    row: str
    """The `nn.Linear` that reads them; what lies between acts on each part alone."""
    parts: int
    """The number of parts into which the outputs of `column` may be divided: heads, or hidden
    units."""
    what: str
    """The name of these parts, in the plural."""


@dataclass(frozen=True)
class Sequences:
    """The modules between the splits of a transformer, divided by positions (dimension 1)."""

    embedding: str
    """Its output is divided among the ranks."""
    norms: tuple[str, ...]
    """`nn.LayerNorm`s that read divided positions."""
    mixers: tuple[str, ...]
    """Modules that read all positions, each after a norm and ending in the `row` of a split."""
    head: str
    """Reads all positions, after the last norm."""
    length: int
    """Positions of a sample."""


@dataclass(frozen=True)
class Declaration:
    """The ways in which a plain model may be spread over ranks. What it leaves out, the model
    cannot do."""

    layers: tuple[Layer, ...] = ()
    """The model's layers in the order in which its forward pass runs them, each with weights of its
    own. `fsdp` gathers the weights of one of them at a time. `pipeline` cuts between them: for it
    they must be the whole forward pass, each handing one tensor to the next."""
    splits: tuple[Split, ...] = ()
    """The layers that `tensor` divides; the rest is computed by all ranks alike."""
    sequences: Sequences | None = None
    """The modules that `sequence_parallel` divides besides."""

    @property
    def modules(self) -> list[str]:
        """Return the names of all declared modules."""
        names = [name for layer in self.layers for name in layer]
        names += [name for split in self.splits for name in (split.column, split.row)]
        if (sequences := self.sequences) is not None:
            names += [sequences.embedding, *sequences.norms, *sequences.mixers, sequences.head]
        return names


def check(
    declaration: Declaration,
    degrees: Degrees,
    *,
    sequence_parallel: bool = False,
    schedule: Schedule = "gpipe",
) -> None:
    """Check that a model supports the degrees of a job.

    Raises:
        DegreesError: it does not; the message names the number that is not divisible.
    """
    tensor = degrees.tensor
    if tensor > 1 and not declaration.splits:
        raise DegreesError(
            "tensor",
            f"the model declares no layers that tensor parallelism can split; {_INSTEAD}",
        )
    for split in declaration.splits:
        if split.parts % tensor != 0:
            raise DegreesError(
                "tensor",
                f"the {split.parts} {split.what} of {split.column} are not divisible by tensor "
                f"{tensor}; choose a divisor of {split.parts}",
            )
    _check_stages(declaration, degrees.pipeline, STAGES_PER_RANK[schedule])
    if not sequence_parallel:
        return
    check_sequences(degrees)
    if declaration.sequences is None:
        raise DegreesError(
            "sequence_parallel",
            "the model declares no sequences to split; leave it out",
        )
    if (length := declaration.sequences.length) % tensor != 0:
        raise DegreesError(
            "sequence_parallel",
            f"{length} positions are not divisible by tensor {tensor}; choose a divisor of "
            f"{length}, or leave it out",
        )


def check_sequences(degrees: Degrees) -> None:
    """Check that there are tensor ranks to split sequences over.

    Raises:
        DegreesError: there is only one.
    """
    if degrees.tensor == 1:
        raise DegreesError(
            "sequence_parallel",
            "needs tensor above 1, under strategy tensor, fsdp or pipeline; leave it out, or raise "
            "parallelism.tensor",
        )


def _check_stages(declaration: Declaration, pipeline: int, per_rank: int) -> None:
    if pipeline == 1:
        return
    if not declaration.layers:
        raise DegreesError(
            "pipeline",
            f"the model declares no layers to cut between; {_INSTEAD}",
        )
    stages, layers = pipeline * per_rank, len(declaration.layers)
    if layers < stages:
        several = per_rank > 1
        each = f" × {per_rank} stages per rank" if several else ""
        raise DegreesError(
            "pipeline",
            f"the model has {layers} layers, fewer than the {stages} stages of pipeline {pipeline}"
            f"{each}; choose a smaller degree"
            f"{', or a schedule with one stage per rank' if several else ''}",
        )
