"""What decisions are made from: the state of the cluster as plain, frozen values."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from trainhall.cluster.fencing import FencingToken
from trainhall.cluster.lifecycle.host_report import HostReport
from trainhall.cluster.lifecycle.states import AttemptState, Goal, JobState, NodeState
from trainhall.training.link.failure import Failure


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
    """Since the node was last heard, or since the coordinator began to listen if that is later."""
    devices: tuple[DeviceFacts, ...]
    """Those that it has. An attempt may still hold others."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """What a job's selector is held against."""
    drain_reason: str | None = None
    """Why it is to be drained; None: it is not."""
    faults_counted_from: datetime | None = None
    """Faults before this count no more against it."""


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
    """The newest step that is known: told, or saved by a job that runs."""
    failed_before: Failure | None = None
    """Of a job that has restarted and runs: what its newest failed attempt ended with."""
    last_failure: str | None = None
    """Of a job that recovers: why its last attempt ended."""
    last_ended_at: datetime | None = None
    """Of a job that recovers: when its last attempt ended."""
    sizes: tuple[int, ...] = ()
    """The world sizes that it can have, ascending; a job that is not elastic has one: `workers`, or
    what a user resized it to."""
    selector: Mapping[str, str] = field(default_factory=dict)
    """Labels that a node must have to be granted."""
    one_host: bool = False
    """All its ranks on one node."""
    name: str | None = None
    project: str | None = None
    user: str | None = None
    preemption: bool = True
    """It may be paused to make room for a job of higher priority."""
    total_steps: int | None = None
    step_seconds: float | None = None
    """Of a waiting job that ran before: what a step took at the last, with `workers`."""

    def __post_init__(self) -> None:
        if not self.sizes:
            object.__setattr__(self, "sizes", (self.workers,))


@dataclass(frozen=True)
class HostFacts:
    """One host of an attempt's allocation."""

    node_id: str
    node_name: str
    report: HostReport | None
    """None: nothing was heard yet."""
    ranks: tuple[int, ...] = ()
    devices: tuple[int, ...] = ()
    """Their devices' indices."""


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
    """It waits until its first host has planned the job's strategy."""
    started_at: datetime | None = None
    """When its devices were granted."""
    isolation_seconds: float | None = None
    """Its ranks end by themselves before their node was silent for so long; None: they go on."""
    begun: bool = False
    """A rank told that training began; a script without the SDK tells nothing."""
    stepped: bool = True
    """The ranks of its present generation have taken a step, so that all of them have the state; of
    the first generation `begun` says more."""
    reason: str = ""
    """Why it is in the state that it is in; of one that stops, why it does."""
    reason_code: str = ""
    in_place: bool = False
    """Its ranks can regroup while they run."""
    device: str = "cpu"
    """The kind of its devices."""
    regrouped_at: datetime | None = None
    """When its present generation was decided."""
    failed_before: Failure | None = None
    """What the newest regrouping after a failure was for."""
    left: Mapping[str, HostReport] = field(default_factory=dict)
    """What hosts told that a regrouping left out, by node id."""
    running_at: datetime | None = None
    """When all its hosts ran their ranks."""
    first_step: int | None = None
    """The first step that it took."""
    not_understood: str | None = None
    """What this version does not understand of its job's spec, so that it can tell its hosts
    nothing but to stop."""

    @property
    def token(self) -> FencingToken:
        return FencingToken(self.job_id, self.number, self.generation)

    @property
    def saves(self) -> bool:
        """Told to pause, it saves. A script that tells nothing gets SIGTERM, and what it may keep
        by itself nobody knows."""
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
    """Those that wait and those with an active attempt."""
    attempts: tuple[AttemptFacts, ...] = ()
    """The active ones, and ended ones that still hold devices."""
    grants: tuple[GrantFacts, ...] = field(default=())
    listening_seconds: float = math.inf
    """How long the coordinator has listened: what happened before may not have been told yet."""
