"""The launch of an attempt on a host: what a shim and its ranks are started with."""

from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from trainhall.training.fencing import FencingToken
from trainhall.training.link.base import LinkModel
from trainhall.training.link.regular_file import read_regular
from trainhall.training.spec import JobSpec
from trainhall.training.spec.plan import PlanPrediction, PlanRequest

MAX_LAUNCH_BYTES = 16 * 2**20


class Command(IntEnum):
    """The shim's command to its ranks. A higher one overrides a lower one; it never goes back."""

    RUN = 0
    PAUSE = 1
    """Agree on a step, save a checkpoint, leave with EXIT_PAUSED."""
    STOP = 2
    """Agree on a step and leave with EXIT_STOPPED, saving nothing."""


class RankSlot(LinkModel):
    """One rank of an attempt on one host."""

    rank: int
    local_rank: int
    device_kind: Literal["cpu", "cuda"]
    device_index: int
    """Index of the device on its node: a GPU, or a CPU slot."""


class Rendezvous(LinkModel):
    """The address of the attempt's TCPStore, and where in it the ranks meet."""

    address: str
    port: int
    prefix: str = ""
    """Prefix of all keys: random, known to this attempt alone. The generation follows it."""


class Unrecorded(LinkModel):
    """Checkpoints that an earlier attempt may have committed unreported: it was not revoked."""

    attempt: int
    generation: int
    after_step: int
    """The last known step of it; -1: none. Checkpoints up to it may be deleted by now."""


class CheckpointPlan(LinkModel):
    """The folder of an attempt's checkpoints, and the one that it starts from."""

    folder: str
    """Holds one folder per checkpoint (`step-00000120-a1-g1`): shared, or local to this host."""
    upload: bool
    """The folder is local: the agent uploads what was committed, and fetched `resume` into it."""
    resume: list[str] = Field(default_factory=list)
    """Names of checkpoint folders to start from, best first; the next one is the fallback."""
    unrecorded: Unrecorded | None = None
    """In a shared folder: checkpoints to look for, which are better than `resume`."""
    lacking: dict[str, str] = Field(default_factory=dict)
    """Better checkpoints that this host could not fetch, and why."""


class TracePlan(LinkModel):
    """Take the steps of a job, write down what they computed, and save and evaluate nothing."""

    reference: str
    """Folder of the run that the others are compared with."""
    record: bool
    """True for that run; otherwise rank 0 writes to `AttemptFolder.comparison`."""
    dtype: Literal["float64", "float32"]
    """The type of weights, data and all that is computed."""
    parts: int = 1
    """In a run of one rank: the number of ranks among which the compared runs divide a batch. Batch
    norm's running statistics are those of the first."""
    perturbed: float = 0.0
    """In a run of one rank: the mean relative change of its first weights."""


class BuiltEnvironment(LinkModel):
    """Python environment that this host has installed for a job."""

    path: str
    """Folder of the virtual environment."""

    @property
    def python(self) -> str:
        """Path of its interpreter."""
        return str(Path(self.path, "bin", "python"))


class AttemptContainer(LinkModel):
    """Container that the ranks of an attempt run in on this host."""

    image: str
    """Digest of the image, or its id."""
    python: str
    """Path of its interpreter, inside."""
    mounts: dict[str, str]
    """Files and folders of the host that are read-only inside, by their path there."""

    def with_mounts(self, paths: Iterable[str]) -> "AttemptContainer":
        """Return the same with further paths of the host, which are the same inside."""
        return self.model_copy(update={"mounts": self.mounts | {path: path for path in paths}})


class Launch(LinkModel):
    """One attempt's part on one host. Complete: shim and ranks need nothing else."""

    job_id: str
    attempt: Annotated[int, Field(ge=1)]
    generation: Annotated[int, Field(ge=1)]
    spec: JobSpec
    world_size: int
    node_rank: int
    """Position of this host among the attempt's hosts; 0 holds the rendezvous store."""
    num_nodes: int
    ranks: list[RankSlot]
    """This host's ranks, in order of local rank. None: of a generation that leaves this host out,
    whose processes here leave at the step at which the others regroup."""
    rendezvous: Rendezvous | None = None
    """None on node rank 0, which opens the store; the others wait until it is known."""
    address: str = "127.0.0.1"
    """The address at which the attempt's other hosts reach this one."""
    pauses_after: int = 0
    """Pauses of `training.pause_at` up to this step are over."""
    in_place: bool = False
    """Ranks that lose one of them keep what they have in memory and wait for a launch of a higher
    generation, in which a process keeps its device and may get another number."""
    broken: int = 0
    """The newest generation that has lost a rank: a rank that still waits in a group of it,
    or of an earlier one, would wait without end."""
    isolation_seconds: float | None = None
    """Under `recovery.on_isolation: stop`: the silence after which the coordinator may start the
    job elsewhere. The shim ends the ranks before that."""
    checkpoint: CheckpointPlan
    code: str | None = None
    """Attempt's own folder with the code of the spec; the agent unpacks it."""
    code_name: str | None = None
    """Name under which the agent keeps that code as it came."""
    environment: BuiltEnvironment | None = None
    """Environment of the ranks, which the agent installs; None: the agent's own."""
    data: dict[str, str] = Field(default_factory=dict)
    """Paths of the job's data sets on this host, by name; the agent makes them ready."""
    container: AttemptContainer | None = None
    """None: the ranks are processes of the host."""
    planning: PlanRequest | None = None
    """The strategy is still to be planned, by node rank 0; until it is, no host starts a rank."""
    prediction: PlanPrediction | None = None
    """The prediction of the strategy that a plan has chosen."""
    trace: TracePlan | None = None
    """Compare strategies instead of training for a result; no agent is asked to."""

    @property
    def arguments(self) -> list[str]:
        """Arguments of the script, with the values of parameters and the paths of data sets."""
        return self.spec.arguments_with(self.data)

    def with_data(self, paths: dict[str, str]) -> "Launch":
        """Return the launch on a host that has the data sets ready, by name."""
        return self.model_copy(update={"data": paths, "spec": self.spec.with_data(paths)})

    def pauses_at(self, step: int) -> bool:
        """Return whether the job pauses by itself after a step."""
        return step > self.pauses_after and step in self.spec.training.pause_at

    @property
    def token(self) -> FencingToken:
        return FencingToken(self.job_id, self.attempt, self.generation)


def load_launch(path: Path) -> Launch:
    """Read a launch.

    Raises:
        OSError, ValueError: it cannot be read, or is not one.
    """
    return Launch.model_validate_json(read_regular(path, MAX_LAUNCH_BYTES))
