"""The wire protocol between an agent and the coordinator.

One outbound websocket per node carries *state, never events*: the agent sends the current state
(`Report`), the coordinator the desired state (`Desired`), each message complete in itself.
Losing, repeating or reordering any of them is harmless. Bulk data goes over HTTP, each request
carrying its own position, so that it too may be repeated; small batches of metrics and logs,
several a second, share the messages of a second websocket. Below `/api/v1/agent`:

    POST /join                                             `JoinRequest` → `JoinReply`
    WS   /connect                                          `Report` ⇄ `Desired`
    WS   /ship                                             small batches ⇄ replies (`wire.batches`)
    WS   /tunnels/{ticket}                                 a session beside a job (`wire.tunnel`)
    POST /jobs/{job}/attempts/{attempt}/metrics?writer=W&generation=G  metric frames → `Acked`
    POST /jobs/{job}/attempts/{attempt}/events?writer=W&generation=G   `RankEvent` lines → `Acked`
    POST /jobs/{job}/attempts/{attempt}/logs?rank=R&stream=S&offset=N&generation=G → `LogAcked`
    POST /jobs/{job}/attempts/{attempt}/token              → `AttemptToken`, in place of the last
    POST /jobs/{job}/attempts/{attempt}/secrets            → `Secrets`
    GET  /jobs/{job}/attempts/{attempt}/environment        → `EnvironmentLock`; 204: not locked yet
    PUT  /jobs/{job}/attempts/{attempt}/environment        `EnvironmentLock` → the first that came
    PUT  /jobs/{job}/attempts/{attempt}/data               `DataReport` → 204
    GET  /jobs/{job}/attempts/{attempt}/commit             → `PinnedCommit`; 204: not pinned yet
    PUT  /jobs/{job}/attempts/{attempt}/commit             `PinnedCommit` → the first that came
    PUT  /jobs/{job}/checkpoints/{name}/files/{path}       bytes (idempotent, hashed) → 204
    GET  /jobs/{job}/checkpoints/{name}/files/{path}       bytes
    POST /jobs/{job}/checkpoints/{name}/commit             after the manifest was stored → 204
    POST /jobs/{job}/checkpoints/{name}/verify             hash the files in the store → `Verified`
    GET  /code/{sha256}                                    the archive of a job's code
    …    /jobs/{job}/attempts/{attempt}/outputs            files that jobs write (`wire.outputs`)

All but `join` carry `Authorization: Bearer <node credential>`. A writer is named
`"<rank>-<8 hex digits>"` by the shim that starts it; `Acked.sequence` is the newest sequence that
is committed, and the agent resumes from there. `generation` is the one in which the writer began,
or the first that wrote a log; with the node it says what of it is superseded
(`monitoring.lineage`). A refused (revoked) attempt still ships logs and metrics.
"""

from enum import IntEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator

from trainhall.documented import Documented
from trainhall.training.link.failure import Failure
from trainhall.training.link.launch import Launch, Rendezvous
from trainhall.training.link.profiling.messages import ProfileRequest
from trainhall.training.link.stall import Stall
from trainhall.training.link.status import FailedRank, Outcome, RankState
from trainhall.training.spec.plan import ChosenPlan
from trainhall.training.spec.source.git_code import COMMIT

PROTOCOL_VERSION = 1
_LARGEST_READING = 1e15


class CloseCode(IntEnum):
    """Why the coordinator closes a connection (WebSocket application codes)."""

    STOPPING = 1001
    """The coordinator shuts down; connect again."""
    INVALID = 4400
    """A message that is not understood."""
    REMOVED = 4403
    """The node was removed; its credential is revoked."""
    NO_REPORT = 4408
    """Nothing was received for too long; connect again."""
    REPLACED = 4409
    """A newer connection of this node took over."""
    PROTOCOL = 4426
    """Another version of the protocol; upgrade."""


class Message(Documented, BaseModel):
    model_config = ConfigDict(extra="ignore", defer_build=True)


def first_problem(error: ValidationError) -> str:
    """Return the first problem of a message that is not understood, with its field."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'message'}: {first['msg']}"


DeviceIndex = Annotated[int, Field(ge=0, lt=2**31)]


class DeviceInfo(Message):
    """Properties of a device. They do not change while the agent runs."""

    index: DeviceIndex
    kind: Literal["cpu", "cuda"]
    name: str
    uuid: str | None = None
    memory_total: Annotated[int, Field(ge=0, lt=2**63)]
    """Bytes."""


class DeviceUse(Message):
    """Current use of a device; None where the host cannot measure it."""

    index: DeviceIndex
    memory_used: int | None = None
    """Bytes."""
    utilization: float | None = None
    """0 to 100."""
    temperature: float | None = None
    """Degrees Celsius."""
    power: float | None = None
    """Watts."""

    @field_validator("memory_used", "utilization", "temperature", "power")
    @classmethod
    def _as_measured(cls, value: float | None) -> float | None:
        # Drivers have numbers for what they cannot measure, such as -1 without its sign.
        return value if value is not None and abs(value) < _LARGEST_READING else None


class HostUse(Message):
    """Current use of the host."""

    cpu: float = 0.0
    """0 to 100 over all cores."""
    memory_used: int = 0
    """Bytes."""
    memory_total: int = 0
    """Bytes."""
    disk_used: int = 0
    """Bytes on the file system of the agent's data folder."""
    disk_total: int = 0
    """Bytes."""
    backlog: int = 0
    """Bytes of output, metrics and events that the coordinator has not acknowledged."""
    cores: int = 0
    """Physical cores; 0: not known."""
    container_engine: Annotated[str, Field(max_length=64)] | None = None
    """Program that runs containers, and its version (`podman 5.4.2`); None: there is none."""


class JoinRequest(Message):
    join_token: str
    name: str
    address: str
    agent_version: str
    protocol_version: int = PROTOCOL_VERSION
    devices: list[DeviceInfo]


class JoinReply(Message):
    node_id: str
    credential: str


AttemptPhase = Literal["planning", "preparing", "starting", "running", "stopping", "exited"]


class AssignmentReport(Message):
    """Current state of one attempt on this node."""

    job_id: str
    attempt: int
    generation: int
    phase: AttemptPhase
    """`planning`: the agent finds the job's strategy. `preparing`: it fetches a checkpoint, the
    code or data sets, installs the environment, or waits for the rendezvous."""
    preparing: str | None = None
    """Work of the agent on the environment or data sets of the job, in words, until they are
    there."""
    sessions: int | None = None
    """Sessions of users beside its ranks here; None: the job is not interactive."""
    ranks: list[RankState] = []
    stall: Stall | None = None
    """Stall of the ranks here, of an attempt on several hosts: which rank lags behind takes the
    reports of all hosts."""
    in_place: bool = False
    """True if its shim and ranks take up a launch of a higher generation while they run."""
    failed_ranks: list[FailedRank] = []
    """Ranks of an `in_place` launch that have failed, of `generation`; the others are alive and
    wait for a launch of a higher one."""
    leaving: list[int] = []
    """Devices that the launch of `generation` does not list any more, whose processes have yet to
    end: until then nothing else runs on them."""
    rendezvous: Rendezvous | None = None
    """Reported by node rank 0 once the store listens."""
    plan: ChosenPlan | None = None
    """Reported while `planning`, once it is done and until the coordinator answers with a launch
    that has a strategy."""
    plan_refusal: str | None = None
    """Reported in place of `plan` where the strategy that the spec names cannot be predicted."""
    outcome: Outcome | None = None
    """Reported once the attempt's last process on this node is gone."""
    failure: Failure | None = None
    shipped: bool = False
    """Everything the ranks wrote is acknowledged; the agent forgets the attempt when it is not
    desired."""
    isolated: bool = False
    """True if it was ended because the coordinator was unreachable for long, and the job's spec
    says `on_isolation: stop`."""
    agent_stopped: bool = False
    """True if the agent was stopped, and ended its ranks with it. `paused` then means that a
    task has saved, and that a script was sent SIGTERM."""


class Report(Message):
    """Current state of a node. Sent on connect, on every change, and every `heartbeat_seconds`."""

    type: Literal["report"] = "report"
    agent_version: str
    protocol_version: int = PROTOCOL_VERSION
    agent_id: str
    """New at each start of the agent: the coordinator drops an older connection of the node."""
    time: float
    """The agent's clock, seconds since the epoch; the coordinator warns when it is far off."""
    address: str
    devices: list[DeviceInfo]
    device_use: list[DeviceUse] = []
    host: HostUse = HostUse()
    assignments: list[AssignmentReport] = []
    removed: list[str] = []
    """Names of `Desired.remove` that are gone."""
    revision: int = 0
    """Revision of the last `Desired` that was taken up on this connection."""
    number: int = 0
    """Rises from 1 with every report of a connection; 0: the agent needs no word of it."""
    stopping: bool = False
    """The agent is about to end, with or without its ranks: its node gets no new work."""


class Assignment(Message):
    """Desired state of one attempt on this node. An attempt that is not listed shall not run."""

    launch: Launch
    goal: Literal["run", "pause", "stop"]
    """`pause`: agree on a step, save, leave. `stop`: end the ranks now, saving nothing (tasks
    within 2 s, scripts within their grace)."""
    gradients: int = 0
    """Number of a request for the gradients of a step that no rank has answered; 0: there is none.
    """
    profile: ProfileRequest | None = None
    """A profile that was asked for, and has not ended."""
    joined: Annotated[int, Field(ge=1)] | None = None
    """First generation from which on this node is part of the attempt without a break: an end
    here since then is the end of the present generation too, and is never started again. None: a
    coordinator of an older version does not say."""


class Desired(Message):
    """Desired state of a node. Sent after the first report of a connection and on every change."""

    type: Literal["desired"] = "desired"
    revision: int
    """Rises by one with every message of a connection."""
    heartbeat_seconds: float
    acked_report: int = 0
    """`Report.number` of a report that was taken before this was sent."""
    assignments: list[Assignment]
    remove: list[str] = []
    """Checkpoint folders on shared storage that retention or a user deleted. The agent removes
    only a folder that is named like a checkpoint and holds a manifest."""
    tunnels: list[str] = []
    """Tickets of tunnels that the agent shall open, each once (`cluster.wire.tunnel`)."""


class ReportAck(Message):
    """Confirmation of a report.

    Sent for every report of a node with ranks under `on_isolation: stop`: what they may do
    depends on its last acknowledged report.
    """

    type: Literal["report_ack"] = "report_ack"
    report: int
    """`Report.number`."""


ToAgent = TypeAdapter[Desired | ReportAck](
    Annotated[Desired | ReportAck, Field(discriminator="type")],
    config=ConfigDict(defer_build=True),
)
"""Messages of a coordinator."""


class Acked(Message):
    sequence: int


class AttemptToken(Message):
    """API token for the ranks of an attempt on a node."""

    token: str = Field(repr=False)


class Secrets(Message):
    """Secrets of an attempt, for the node that is about to start it."""

    values: dict[str, str] = Field(repr=False)
    """By the name of the environment variable."""


class PinnedCommit(Message):
    """Commit that a job's code in git is fixed to."""

    commit: Annotated[str, Field(pattern=f"^{COMMIT}$")]


class LogAcked(Message):
    next_offset: int
    """`monitoring.lines.LOG_FULL`: no more of the job's output is stored."""


class Verified(Message):
    problems: list[str]
    """Problems of a checkpoint in the coordinator's store; none: it is whole."""
