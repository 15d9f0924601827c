"""Facts for decisions: the state of the cluster as plain, frozen values."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from trainhall.cluster.lifecycle.host_report import HostReport
from trainhall.cluster.lifecycle.states import AttemptState, Goal, JobState, NodeState
from trainhall.training.fencing import FencingToken
from trainhall.training.link.failure import Failure
from trainhall.training.link.status import Outcome


@dataclass(frozen=True)
class DeviceFacts:
    index: int
    kind: str


@dataclass(frozen=True)
class NodeFacts:
    id: str
    name: str
    state: NodeState
    removing: bool
    seconds_since_heartbeat: float
    """Seconds since the last heartbeat, or since the coordinator began to listen if that is
    later."""
    devices: tuple[DeviceFacts, ...]
    """Its present devices. An attempt may still hold others."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that a job's selector is compared with."""
    projects: frozenset[str] | None = None
    """The only projects whose jobs it gets; None: all."""
    has_containers: bool = False
    """True if it can run jobs in containers."""
    drain_reason: str | None = None
    """Why it is to be drained; None: it is not."""
    removed_by: str | None = None
    """User who removes it, if that is known."""

    @property
    def is_leaving(self) -> bool:
        """Return whether it is to be drained or removed once nothing runs on it."""
        return self.removing or self.state is NodeState.DRAINING


@dataclass(frozen=True)
class JobFacts:
    id: str
    number: int
    priority: int
    state: JobState
    reason: str
    attempt: int
    workers: int
    """The world size of its attempt; of a waiting job, that of its last one or the largest."""
    device: str
    """auto, cpu or cuda."""
    queued_at: datetime
    restarts: int
    restarts_step: int
    max_restarts: int
    step: int
    """Newest step that is known: reported, or saved by a running job."""
    failed_before: Failure | None = None
    """Last failure of the newest failed attempt, for a job that has restarted and runs."""
    last_failure: str | None = None
    """Attempt that ended and the reason, for a job that recovers."""
    last_ended_at: datetime | None = None
    """Time at which the last attempt ended, for a job that recovers."""
    sizes: tuple[int, ...] = ()
    """The world sizes that it can have, ascending; a job that is not elastic has one: `workers`, or
    what a user resized it to."""
    selector: Mapping[str, str] = field(default_factory=dict)
    """Labels that a node must have to be granted."""
    in_container: bool = False
    """Its ranks run in a container, for which a node needs a container engine."""
    one_host: bool = False
    """All its ranks on one node."""
    pause_at: tuple[int, ...] = ()
    """Steps at which its ranks pause by themselves."""
    idle_seconds: float | None = None
    """Time without a session after which an interactive job ends; None: it is none."""
    in_experiment: bool = False
    """Membership in an experiment, whose rungs `pause_at` has then."""
    name: str | None = None
    reason_code: str = ""
    """`ReasonCode` of `reason`."""
    asked_by: str | None = None
    """User who last asked for a change of its state or size, if that is known."""
    project: str | None = None
    user: str | None = None
    preemption: bool = True
    """True if a job of higher priority may preempt it."""
    total_steps: int | None = None
    step_seconds: float | None = None
    """Latest seconds per step, with `workers`, for a waiting job that ran before."""

    def __post_init__(self) -> None:
        if not self.sizes:
            object.__setattr__(self, "sizes", (self.workers,))

    @property
    def is_wanted(self) -> bool:
        """Return whether no pause or end is requested."""
        return self.state in (JobState.STARTING, JobState.RUNNING)


@dataclass(frozen=True)
class HostFacts:
    """One host of an attempt's allocation."""

    node_id: str
    node_name: str
    report: HostReport | None
    """None: nothing was received yet."""
    ranks: tuple[int, ...] = ()
    devices: tuple[int, ...] = ()
    """Their devices' indices."""

    @property
    def outcome(self) -> Outcome | None:
        return self.report.outcome if self.report is not None else None

    @property
    def failure(self) -> Failure:
        """Failure that its ranks ended with."""
        reported = self.report.failure if self.report is not None else None
        failure = reported or Failure(message="failed without a message")
        return failure.model_copy(update={"node": self.node_name})


@dataclass(frozen=True)
class AttemptFacts:
    job_id: str
    number: int
    generation: int
    state: AttemptState
    goal: Goal
    failure: Failure | None
    """Set once the attempt is being stopped because one of its hosts failed."""
    hosts: tuple[HostFacts, ...]
    """In the order of node ranks."""
    script: bool = False
    plans: bool = False
    """True if it waits until its first host has planned the job's strategy."""
    started_at: datetime | None = None
    """When its devices were granted."""
    isolation_seconds: float | None = None
    """Seconds without contact before which its ranks end on their own; None: they keep running."""
    begun: bool = False
    """True if a rank reported that training began; a script without the SDK reports nothing."""
    stepped: bool = True
    """The ranks of its present generation have taken a step, so that all of them have the state; of
    the first generation `begun` says more."""
    reason: str = ""
    """Why it is in the state that it is in; of one that stops, why it does."""
    reason_code: str = ""
    in_place: bool = False
    """True if its ranks can regroup while they run."""
    device: str = "cpu"
    """The kind of its devices."""
    regrouped_at: datetime | None = None
    """When its present generation was decided."""
    failed_before: Failure | None = None
    """Failure that the newest regrouping was for."""
    left: Mapping[str, HostReport] = field(default_factory=dict)
    """Last reports of hosts that a regrouping left out, by node id."""
    running_at: datetime | None = None
    """When all its hosts ran their ranks."""
    first_step: int | None = None
    """The first step that it took."""
    not_understood: str | None = None
    """Part of its job's spec that this version does not understand, so that it can only stop it."""

    @property
    def token(self) -> FencingToken:
        return FencingToken(self.job_id, self.number, self.generation)

    @property
    def size(self) -> int:
        return sum(len(host.devices) for host in self.hosts)

    @property
    def saves(self) -> bool:
        """Return whether it saves when asked to pause.

        A script that reports nothing gets SIGTERM; whether it saves then is unknown.
        """
        return not self.script or self.begun


@dataclass(frozen=True)
class GrantFacts:
    node_id: str
    device_index: int
    job_id: str
    attempt: int


@dataclass(frozen=True)
class ClusterFacts:
    """Everything that is not finished."""

    nodes: tuple[NodeFacts, ...] = ()
    jobs: tuple[JobFacts, ...] = ()
    """Waiting jobs, and jobs with an active attempt."""
    attempts: tuple[AttemptFacts, ...] = ()
    """The active ones, and ended ones that still hold devices."""
    grants: tuple[GrantFacts, ...] = field(default=())
    listening_seconds: float = math.inf
    """Time since the coordinator began to listen: earlier events may not have been reported yet."""
