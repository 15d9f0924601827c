"""Where the ranks of a launch meet, and who serves them there."""

import signal
from dataclasses import dataclass

from trainhall.cluster.agent import meeting, processes, store
from trainhall.training.cause import Cause
from trainhall.training.link import AttemptFolder, Failure, Launch, Rendezvous


@dataclass(frozen=True)
class Place:
    rendezvous: Rendezvous
    store_pid: int | None = None
    """The child that holds the store. None: it ended, or another host or a script's rank 0 does."""

    def serves(self, launch: Launch) -> bool:
        """A later generation can meet here too."""
        stands = self.store_pid is not None and self.rendezvous.address == _own_address(launch)
        return not launch.ranks or (launch.node_rank == 0 and stands)

    def close(self) -> None:
        """End the store: the ranks of no generation meet here any more."""
        if self.store_pid is not None:
            processes.send([self.store_pid], signal.SIGKILL)


def find(folder: AttemptFolder, launch: Launch, *, fork: bool) -> Place | Failure:
    """Where the ranks of a launch meet; the first host opens the place.

    Args:
        fork: the store is served in a copy of this process, which has torch imported.
    """
    if launch.node_rank > 0:
        if launch.rendezvous is None:
            return Failure(message="the launch of a further host says nothing of the rendezvous")
        return Place(launch.rendezvous)
    address = _own_address(launch)
    if launch.spec.script is not None:
        return Place(Rendezvous(address=address, port=meeting.free_port(address)))
    try:
        # It listens here at once, so that ranks can start, and a child serves who connects.
        pid, port = store.start(folder, address, fork=fork)
    except OSError as error:
        message = f"the ranks cannot meet at {address}: {error}"
        return Failure(message=message, cause=Cause.NETWORK)
    return Place(Rendezvous(address=address, port=port), pid)


def _own_address(launch: Launch) -> str:
    return launch.address if launch.num_nodes > 1 else "127.0.0.1"
