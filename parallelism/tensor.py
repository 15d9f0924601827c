"""Tensor parallelism: the ranks of a group compute each layer together, on the same samples.

Of two linear layers the first is divided by columns, the second by rows, so that one sum over the
ranks is all they exchange (Megatron: Shoeybi et al., arXiv:1909.08053). With sequence parallelism
what lies between is divided by positions (Korthikanti et al., arXiv:2205.05198).
"""

from torch import nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from trainhall.parallelism.declaration import Declaration, Sequences
from trainhall.parallelism.mesh import Mesh
from trainhall.parallelism.parts import Divided, average
from trainhall.parallelism.strategy import share_weights

_POSITIONS = 1
"""The dimension of positions in [B, T, D]."""


class TensorParallel(Divided):
    """A model whose split layers are DTensors, in `data` copies whose gradients are averaged."""

    def __init__(
        self, model: nn.Module, declaration: Declaration, mesh: Mesh, *, sequence_parallel: bool
    ) -> None:
        """Divide the model.

        Args:
            model: on the device, with equal shapes on all ranks; rank 0's weights win.
            sequence_parallel: of `divide`.
        """
        share_weights(model)
        divide(model, declaration, mesh, sequence_parallel=sequence_parallel)
        super().__init__(model, mesh)
        self._copies = mesh.group("data")

    def average_gradients(self) -> None:
        super().average_gradients()
        if self.degrees.data > 1:
            memories = self.parameters.values()
            average([m.grad for m in memories if m.grad is not None], self._copies)


def divide(
    model: nn.Module, declaration: Declaration, mesh: Mesh, *, sequence_parallel: bool
) -> None:
    """Divide the declared layers of a model among the mesh's `tensor` ranks, in place."""
    sequences = declaration.sequences if sequence_parallel else None
    row = RowwiseParallel(output_layouts=Replicate() if sequences is None else Shard(_POSITIONS))
    plan: dict[str, ParallelStyle] = {}
    for split in declaration.splits:
        plan |= {split.column: ColwiseParallel(), split.row: row}
    if sequences is not None:
        plan |= _by_positions(sequences)
    parallelize_module(model, mesh.devices["tensor"], plan)


def _by_positions(sequences: Sequences) -> dict[str, ParallelStyle]:
    divided, whole = Shard(_POSITIONS), Replicate()
    plan: dict[str, ParallelStyle] = {
        sequences.embedding: PrepareModuleOutput(
            output_layouts=whole, desired_output_layouts=divided
        ),
        sequences.head: PrepareModuleInput(
            input_layouts=divided, desired_input_layouts=whole, use_local_output=True
        ),
    }
    plan |= {name: SequenceParallel(sequence_dim=_POSITIONS) for name in sequences.norms}
    gather = PrepareModuleInput(input_layouts=divided, desired_input_layouts=whole)
    return plan | dict.fromkeys(sequences.mixers, gather)
