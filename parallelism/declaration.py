"""What a model allows: declared beside the model, without torch, so that a job is judged early."""

from dataclasses import dataclass

from trainhall.parallelism.degrees import STAGES_PER_RANK, BadDegrees, Degrees, Schedule

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
    """The `nn.Linear` that reads them; what lies between acts on each part by itself."""
    parts: int
    """How finely the outputs of `column` may be divided: heads, or hidden units."""
    what: str
    """The name of these parts, in the plural."""


@dataclass(frozen=True)
class Sequences:
    """What lies between the splits of a transformer, divided by positions (dimension 1)."""

    embedding: str
    """Its output is divided among the ranks."""
    norms: tuple[str, ...]
    """`nn.LayerNorm`s that read divided positions."""
    mixers: tuple[str, ...]
    """Modules that read all positions, each behind a norm and ending in the `row` of a split."""
    head: str
    """Reads all positions, behind the last norm."""
    length: int
    """Positions of a sample."""


@dataclass(frozen=True)
class Declaration:
    """How a plain model may be spread over ranks. What it leaves out, the model cannot do."""

    layers: tuple[Layer, ...] = ()
    """The model's layers in the order in which its forward pass runs them, each with weights of its
    own. `fsdp` gathers the weights of one of them at a time. `pipeline` cuts between them: for it
    they must be the whole forward pass, each handing one tensor to the next."""
    splits: tuple[Split, ...] = ()
    """What `tensor` divides; the rest is computed by all ranks alike."""
    sequences: Sequences | None = None
    """What `sequence_parallel` divides besides."""

    @property
    def modules(self) -> list[str]:
        """The names of all modules that it tells of."""
        names = [name for layer in self.layers for name in layer]
        names += [name for split in self.splits for name in (split.column, split.row)]
        if (told := self.sequences) is not None:
            names += [told.embedding, *told.norms, *told.mixers, told.head]
        return names


def check(
    declaration: Declaration,
    degrees: Degrees,
    *,
    sequence_parallel: bool = False,
    schedule: Schedule = "gpipe",
) -> None:
    """See that a model allows what a job asks for.

    Raises:
        BadDegrees: it does not; the message says which number does not divide.
    """
    tensor = degrees.tensor
    if tensor > 1 and not declaration.splits:
        raise BadDegrees(
            "tensor",
            f"the model declares no layers that tensor parallelism can divide; {_INSTEAD}",
        )
    for split in declaration.splits:
        if split.parts % tensor != 0:
            raise BadDegrees(
                "tensor",
                f"the {split.parts} {split.what} of {split.column} do not divide by tensor "
                f"{tensor}; choose a divisor of {split.parts}",
            )
    _check_stages(declaration, degrees.pipeline, STAGES_PER_RANK[schedule])
    if not sequence_parallel:
        return
    check_sequences(degrees)
    if declaration.sequences is None:
        raise BadDegrees(
            "sequence_parallel",
            "the model declares no sequences that could be divided; leave it out",
        )
    if (length := declaration.sequences.length) % tensor != 0:
        raise BadDegrees(
            "sequence_parallel",
            f"{length} positions do not divide by tensor {tensor}; choose a divisor of {length}, "
            "or leave it out",
        )


def check_sequences(degrees: Degrees) -> None:
    """See that there are ranks to divide sequences among, whatever the model.

    Raises:
        BadDegrees: there is but one.
    """
    if degrees.tensor == 1:
        raise BadDegrees(
            "sequence_parallel",
            "divides among `tensor` ranks, and tensor is 1 here; leave it out, or give "
            "parallelism.tensor above 1 under tensor, fsdp or pipeline",
        )


def _check_stages(declaration: Declaration, pipeline: int, per_rank: int) -> None:
    if pipeline == 1:
        return
    if not declaration.layers:
        raise BadDegrees(
            "pipeline",
            f"the model declares no layers between which it could be cut; {_INSTEAD}",
        )
    stages, layers = pipeline * per_rank, len(declaration.layers)
    if layers < stages:
        told = f" × {per_rank} stages each" if per_rank > 1 else ""
        raise BadDegrees(
            "pipeline",
            f"the model's {layers} layers cannot be cut into pipeline {pipeline}{told} = {stages} "
            "stages; choose a smaller degree"
            + (", or a schedule with one stage a rank" if per_rank > 1 else ""),
        )
