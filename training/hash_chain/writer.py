"""Writes the hash chain of a reproducible job (`training.hash_chain.chain`) as a rank trains."""

import copy
import time
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from torch import Tensor

from trainhall.training.common.sample_order import Indices, Sampler, mix
from trainhall.training.hash_chain.chain import LINK, SAMPLES, WEIGHTS, as_number, next_link
from trainhall.training.link.frames import MetricTable
from trainhall.training.sync.step_sync import Rows

_Words = npt.NDArray[np.uint64]
Write = Callable[[Sequence[MetricTable]], None]


def samples_digest(indices: Indices, first: int) -> int:
    """Return a digest of which samples stand where in a global batch, below 2^64.

    Digests of parts of a batch add up, modulo 2^64, to that of the whole, however it is divided.

    Args:
        first: the place of the first of them in the batch.
    """
    places = mix(np.arange(first, first + len(indices), dtype=np.uint64))
    return int(mix(places ^ indices.astype(np.uint64)).sum())


class ChainWriter:
    """Links the steps between two step syncs, with what all ranks read in them.

    Args:
        gather: every rank's vector, in rank order.
        write: called with tables of the whole job, on every rank.
        first_place: of this rank's samples in each global batch.
    """

    def __init__(
        self,
        gather: Callable[[Rows], list[Rows]],
        write: Write,
        *,
        first_place: int,
    ) -> None:
        self._gather = gather
        self._write_tables = write
        self._first_place = first_place
        self._digests: list[int] = []

    def read(self, samples: Sequence[Tensor]) -> None:
        """Note which samples this rank reads in a step, one micro-batch after the other."""
        digest, place = 0, self._first_place
        for indices in samples:
            digest += samples_digest(indices.numpy(), place)
            place += len(indices)
        self._digests.append(digest % 2**64)

    def gather(self) -> list[int]:
        """Gather the digests of what all ranks have read since the last call, by step. A
        collective."""
        mine: _Words = np.asarray(self._digests, dtype=np.uint64)
        self._digests = []
        # The exchange is one of bytes, whatever they stand for.
        gathered = self._gather(mine.view(np.float64))
        samples: list[int] = np.sum([part.view(np.uint64) for part in gathered], axis=0).tolist()
        return samples

    def add(
        self,
        link: str,
        first_step: int,
        samples: Sequence[int],
        losses: Sequence[float],
        norms: Sequence[float],
    ) -> str:
        """Link steps; the newest link.

        Args:
            samples: their digests, as `gather` gives them.
        """
        links = []
        for i, (digest, loss, norm) in enumerate(zip(samples, losses, norms, strict=True)):
            link = next_link(link, first_step + i, digest, loss, norm)
            links.append(as_number(link))
        self._write(
            range(first_step, first_step + len(links)),
            {LINK: links, SAMPLES: [as_number(f"{digest:016x}") for digest in samples]},
        )
        return link

    def weights(self, step: int, digest: str) -> None:
        """Note the weights of a step, by `weights_sha256`."""
        self._write([step], {WEIGHTS: [as_number(digest)]})

    def _write(self, steps: Sequence[int], columns: dict[str, Sequence[float]]) -> None:
        if steps:
            self._write_tables([MetricTable(None, steps, [time.time()] * len(steps), columns)])


def catch_up(
    link: str,
    sampler: Sampler,
    first_step: int,
    losses: Sequence[float],
    norms: Sequence[float],
    write: Write,
) -> str:
    """Link steps whose ranks can no more exchange what they have read; the newest link.

    Which samples they were follows from the steps.

    Args:
        sampler: of the job, wherever it stands.
    """
    replayed = copy.copy(sampler)
    replayed.seek(first_step - 1)
    digests = []
    for _ in losses:
        (samples,) = replayed.next_batch(0, 1, 1)
        digests.append(samples_digest(samples.numpy(), 0) % 2**64)
    writer = ChainWriter(lambda mine: [mine], write, first_place=0)
    return writer.add(link, first_step, digests, losses, norms)
