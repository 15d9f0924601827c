"""The mesh of a job's ranks, and where a rank stands in it."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from trainhall.parallelism.degrees import Degrees


class Mesh:
    """All ranks as an array with the dimensions of `Degrees`, rank numbers rising innermost.

    Building it is a collective of all ranks. The degrees' names are those of the dimensions.
    """

    def __init__(self, degrees: Degrees, device: torch.device) -> None:
        self.degrees = degrees
        sizes = degrees.sizes
        self.devices: DeviceMesh = init_device_mesh(
            device.type, tuple(sizes.values()), mesh_dim_names=tuple(sizes)
        )
        coordinate = self.devices.get_coordinate()
        assert coordinate is not None  # all ranks are in it
        self._place = dict(zip(sizes, coordinate, strict=True))

    def place(self, name: str) -> int:
        """Return this rank's coordinate along a dimension."""
        return self._place[name]

    def group(self, name: str) -> dist.ProcessGroup:
        """Return the ranks that differ from this one along that dimension alone."""
        return self.devices.get_group(name)

    @property
    def samples(self) -> int:
        """Return the index of this rank's part among the `degrees.samples` parts of a batch."""
        return self.place("data") * self.degrees.shard + self.place("shard")
