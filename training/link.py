"""The link between a rank and its shim: one folder per attempt and host, free of torch.

Nothing here waits for a network or for another process: a rank appends to its own spool files, the
agent tails and ships them, and the shim tells the ranks what to do through one shared page.

    <attempt folder>/
        launch.json                what the agent asked for (`Launch`)
        control.bin                one shared page, which the ranks read (`Control`)
        status.json                what the shim last saw (`ShimStatus`), replaced atomically
        comparison.jsonl           of a run under `TracePlan`: a line a step
        progress/<pid>.bin         what a rank's process does right now (`training.progress`)
        ranks/<rank>/stdout.log    the rank's output, written by the rank itself
        ranks/<rank>/stderr.log
        ranks/<rank>/metrics.bin   metric frames (`MetricSpool`)
        ranks/<rank>/events.jsonl  rank events, one JSON object a line (`EventSpool`)

A metric frame is little-endian:

    magic b"THM1" | payload length u32 | sequence u64 | CRC-32 of the payload u32 | payload

and its payload is a list of tables:

    number of tables u16, then for each table:
    rank i32 (-1: a job-wide series) | rows u32 | columns u16
    for each column: length of the name u16, name in UTF-8
    steps i64[rows] | times f64[rows], seconds since the epoch | values f64[columns][rows]

`trainhall.monitoring` reads the same bytes on the coordinator; the agent forwards them unread.
"""

import errno
import json
import os
import struct
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from trainhall.training.cause import Cause
from trainhall.training.spec import JobSpec
from trainhall.training.spec.plan import PlanRequest, Prediction
from trainhall.training.stall import Stall

FRAME_MAGIC = b"THM1"
_FRAME = struct.Struct("<4sIQI")
_TABLE = struct.Struct("<iIH")
_U16 = struct.Struct("<H")
MAX_FRAME_BYTES = 8 * 1024 * 1024
MAX_WAITING_BYTES = 64 * 1024 * 1024
"""What a rank holds in memory of its metrics or events while the disk is full."""

# Exit codes of a rank of a built-in task. Any other is a failure.
EXIT_COMPLETED = 0
EXIT_PAUSED = 83
"""The rank stopped at an agreed step after a checkpoint was committed."""
EXIT_STOPPED = 84
"""The rank stopped at an agreed step and saved nothing."""
EXIT_NOT_REGROUPED = 85
"""The rank lost others and waited in vain to be told how to go on: a failure, and no cause."""
EXIT_STUCK = 86
"""A step of the rank did not end although its group was broken off."""


class Command(IntEnum):
    """What the shim wants of its ranks. A higher one overrides a lower one; it never goes back."""

    RUN = 0
    PAUSE = 1
    """Agree on a step, save a checkpoint, leave with EXIT_PAUSED."""
    STOP = 2
    """Agree on a step and leave with EXIT_STOPPED, saving nothing."""


class LinkModel(BaseModel):
    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True)


class RankPlace(LinkModel):
    """One rank of an attempt on one host."""

    rank: int
    local_rank: int
    device_kind: Literal["cpu", "cuda"]
    device_index: int
    """Index of the device on its node: a GPU, or a CPU slot."""


class Rendezvous(LinkModel):
    """Where the attempt's TCPStore listens. Keys are prefixed by generation."""

    address: str
    port: int


class Unrecorded(LinkModel):
    """What an earlier attempt may have committed without its agent telling: it was not revoked."""

    attempt: int
    generation: int
    after_step: int
    """The last step of it that is known; -1: none is. What is known may be given up by now."""


class CheckpointPlan(LinkModel):
    """Where an attempt's checkpoints go and which one it starts from."""

    folder: str
    """Holds one folder per checkpoint (`step-00000120-a1-g1`): shared, or local to this host."""
    upload: bool
    """The folder is local: the agent uploads what was committed, and fetched `resume` into it."""
    resume: list[str] = []
    """Names of checkpoint folders to start from, best first; the next one is the fallback."""
    unrecorded: Unrecorded | None = None
    """Where the folder is shared: checkpoints to look for there, which are better than `resume`."""
    lacking: dict[str, str] = {}
    """Of better ones that this host could not get, why not."""


class TracePlan(LinkModel):
    """Take the steps of a job, write down what they computed, and save and evaluate nothing."""

    reference: str
    """Folder of the run that the others are compared with."""
    record: bool
    """This is that run; otherwise rank 0 writes to `AttemptFolder.comparison`."""
    dtype: Literal["float64", "float32"]
    """Of weights, data and all that is computed."""
    parts: int = 1
    """Of a run of one rank: how many ranks the compared ones divide a batch's samples among. Batch
    norm's running statistics are those of the first."""
    disturbed: float = 0.0
    """Of a run of one rank: by which share, in the mean, its first weights are changed."""


class Launch(LinkModel):
    """What a host is to run of one attempt. Complete: shim and ranks need nothing else."""

    job_id: str
    attempt: Annotated[int, Field(ge=1)]
    generation: Annotated[int, Field(ge=1)]
    spec: JobSpec
    world_size: int
    node_rank: int
    """Position of this host among the attempt's hosts; 0 holds the rendezvous store."""
    num_nodes: int
    ranks: list[RankPlace]
    """This host's ranks, in order of local rank. None: of a generation that leaves this host out,
    whose processes here leave at the step at which the others regroup."""
    rendezvous: Rendezvous | None = None
    """None on node rank 0, which opens the store; the others wait until they are told."""
    address: str = "127.0.0.1"
    """How the attempt's other hosts reach this one."""
    in_place: bool = False
    """Ranks that lose one of them keep what they have in memory and wait for a launch of a higher
    generation, in which a process keeps its device and may get another number."""
    broken: int = 0
    """The newest generation that has lost a rank: what still waits in a group of it, or of an
    earlier one, waits in vain."""
    isolation_seconds: float | None = None
    """Under `recovery.on_isolation: stop`: the silence after which the coordinator may start the
    job elsewhere. The shim ends the ranks before that."""
    checkpoint: CheckpointPlan
    code: str | None = None
    """This attempt's own folder with the code of the spec; the agent unpacks it."""
    planning: PlanRequest | None = None
    """The strategy is still to be planned, by node rank 0; until it is, no host starts a rank."""
    prediction: Prediction | None = None
    """What is expected of the strategy that a plan has chosen."""
    trace: TracePlan | None = None
    """Compare strategies instead of training for a result; no agent is asked to."""


class RankState(LinkModel):
    rank: int
    generation: int = 1
    """In which the process began."""
    began_as: int | None = None
    """The rank that the process began as, where that is not `rank`. With the generation it names
    its files, and itself as a writer."""
    pid: int | None = None
    started_at: float | None = None
    finished_at: float | None = None
    exit_code: int | None = None
    """Set when the rank left by itself."""
    signal: int | None = None
    """Set when a signal ended the rank."""

    @property
    def writer(self) -> tuple[int, int]:
        """Rank and generation that the process began with."""
        return (self.rank if self.began_as is None else self.began_as), self.generation


class Outcome(StrEnum):
    """How an attempt ended on one host."""

    COMPLETED = "completed"
    PAUSED = "paused"
    STOPPED = "stopped"
    FAILED = "failed"


class Failure(LinkModel):
    """Why an attempt failed on a host: its first failing rank."""

    rank: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    message: str
    """One line for people."""
    final: bool = False
    """Another attempt would end in the same way."""
    log_tail: str = ""
    """The last lines of the rank's stderr, at most 4 KiB."""
    cause: Cause = Cause.UNKNOWN
    evidence: str = ""
    """What the cause was told by."""
    node: str | None = None
    """Name of the rank's node; the coordinator sets it."""
    step: int | None = None
    """The newest step that a rank of the host had finished."""
    time: float | None = None
    """When it happened by the host's clock, seconds since the epoch: the rank's end was seen, or
    the last step was taken before a hang."""


class Fallen(LinkModel):
    """A rank that has failed while others of its attempt wait for it to be replaced."""

    rank: int
    device_kind: Literal["cpu", "cuda"]
    device_index: int
    generation: int
    """In which it failed."""
    failure: Failure


class ShimStatus(LinkModel):
    """What the shim saw. `outcome` is set once, when no process of the attempt is left here."""

    job_id: str
    attempt: int
    generation: int
    shim_pid: int
    shim_started_at: float
    """Start time of the shim's process as psutil tells it, so that a reused pid is not mistaken."""
    phase: Literal["starting", "running", "stopping", "exited"]
    command: Command = Command.RUN
    ranks: list[RankState] = []
    fallen: list[Fallen] = []
    """Of the present generation, where the others wait for them to be replaced."""
    stall: Stall | None = None
    """Of an attempt on several hosts: the ranks here take no step any more."""
    leaving: list[int] = []
    """Devices that the launch does not list any more, whose processes have yet to end."""
    rendezvous: Rendezvous | None = None
    outcome: Outcome | None = None
    failure: Failure | None = None
    isolated: bool = False
    """The shim began to end the ranks because the coordinator had not been heard for long."""
    updated_at: float = 0.0


class RankEvent(LinkModel):
    """Something rare that a rank tells: the kinds below, with their own keys in `data`.

    started      rank 0, before its first step: `{resumed_from?: step | null, total_steps, samples,
                 generation, since?, note?, passed_over?: [{name, reason, text}]}`; `since` is the
                 earliest generation in which a process of the group began, where they regroup in
                 place; `resumed_from` is missing where
                 nobody knows, of a script that loads no checkpoint through the SDK; one that
                 loads later tells again, and the newest counts; `note` says why an older
                 checkpoint was taken, `passed_over` of each better one: `reason` is missing,
                 damaged, unreadable, mismatch or disagreement
                 (`training.checkpoint.errors.Reason`), `text` says it in words
    stepped      rank 0, after the first step of a generation: `{generation, step, loaded}`;
                 `loaded` is when all ranks had their state, seconds since the epoch
    checkpoint   rank 0, committed: `{name, step, size, files: [{path, size, sha256}],
                 metrics: {…}}`
    failure      before the rank leaves with an exception: `{type, message, traceback, final?}`;
                 `final`: another attempt would end in the same way
    gradients    rank 0, after a step whose gradients were captured: a
                 `training.gradient_record.GradientRecord`
    completed    rank 0, at the end: `{steps, metrics: {name: last value}, weights_sha256, seconds,
                 measured, network?, chain?}`; `chain` is the last link of a reproducible job
    paused       rank 0, after the checkpoint was committed: `{step, measured}`; `measured` is
                 `{peak_memory_bytes, step_seconds, steps}` of this attempt, or null
    network      rank 0, of a job that could combine its gradients in another way, before its first
                 step: `training.network.examine`'s report; the result has it too
    not_saved    a checkpoint could not be written, or not be uploaded; training goes on:
                 `{step, message}`
    note         anything worth an event on the job: `{message}`
    """

    sequence: int
    time: float
    rank: int
    kind: Literal[
        "started", "stepped", "checkpoint", "failure", "completed", "paused", "gradients",
        "network", "not_saved", "note",
    ]  # fmt: skip
    data: dict[str, Any] = {}


@dataclass
class AttemptFolder:
    """The paths of one attempt on one host."""

    path: Path

    @property
    def launch(self) -> Path:
        return self.path / "launch.json"

    @property
    def control(self) -> Path:
        return self.path / "control.bin"

    @property
    def status(self) -> Path:
        return self.path / "status.json"

    @property
    def comparison(self) -> Path:
        return self.path / "comparison.jsonl"

    def group(self, generation: int) -> Path:
        """An `in_place` launch whose ranks can meet: its rendezvous is known."""
        return self.path / f"group-{generation}.json"

    def rank(self, rank: int) -> Path:
        return self.path / "ranks" / str(rank)

    def stdout(self, rank: int) -> Path:
        return self.rank(rank) / "stdout.log"

    def stderr(self, rank: int) -> Path:
        return self.rank(rank) / "stderr.log"

    def metrics(self, rank: int, generation: int = 1) -> Path:
        return self.rank(rank) / f"metrics{_of(generation)}.bin"

    def events(self, rank: int, generation: int = 1) -> Path:
        return self.rank(rank) / f"events{_of(generation)}.jsonl"

    def writers(self) -> list[tuple[int, int]]:
        """Who has written here: rank and generation with which each process began."""
        found: set[tuple[int, int]] = set()
        for path in self.path.glob("ranks/*/*.*"):
            generation = path.stem.partition("-")[2] or "1"
            if path.parent.name.isdigit() and generation.isdigit():
                found.add((int(path.parent.name), int(generation)))
        return sorted(found)


def _of(generation: int) -> str:
    """Distinguishes the files of a process that began in a later generation of its attempt: two
    writers never share one. What they print goes to the same file, one behind the other."""
    return f"-{generation}" if generation > 1 else ""


@dataclass
class MetricTable:
    """Points of several series that share their steps and times."""

    rank: int | None
    """None: job-wide."""
    steps: Sequence[int]
    times: Sequence[float]
    columns: dict[str, Sequence[float]]


def encode_tables(tables: Sequence[MetricTable]) -> bytes:
    """The payload of one frame."""
    parts = [_U16.pack(len(tables))]
    for table in tables:
        rows = len(table.steps)
        parts.append(
            _TABLE.pack(-1 if table.rank is None else table.rank, rows, len(table.columns))
        )
        for name in table.columns:
            encoded = name.encode()
            parts.append(_U16.pack(len(encoded)))
            parts.append(encoded)
        parts.append(struct.pack(f"<{rows}q", *table.steps))
        parts.append(struct.pack(f"<{rows}d", *table.times))
        parts.extend(struct.pack(f"<{rows}d", *values) for values in table.columns.values())
    return b"".join(parts)


def encode_frame(sequence: int, payload: bytes) -> bytes:
    if len(payload) > MAX_FRAME_BYTES:
        raise ValueError(
            f"a metric frame holds at most {MAX_FRAME_BYTES} bytes, not {len(payload)}"
        )
    return _FRAME.pack(FRAME_MAGIC, len(payload), sequence, zlib.crc32(payload)) + payload


@dataclass(frozen=True)
class Frame:
    sequence: int
    end: int
    """Offset just behind the frame in the bytes that were read."""


def complete_frames(data: bytes) -> Iterator[Frame]:
    """The whole frames at the start of `data`; a torn one at the end is left for the next read.

    Raises:
        ValueError: where a frame should begin and does not, or its checksum is wrong.
    """
    at = 0
    while at + _FRAME.size <= len(data):
        magic, length, sequence, checksum = _FRAME.unpack_from(data, at)
        if magic != FRAME_MAGIC or length > MAX_FRAME_BYTES:
            raise ValueError(f"no metric frame at byte {at}")
        start, end = at + _FRAME.size, at + _FRAME.size + length
        if end > len(data):
            return
        if zlib.crc32(data[start:end]) != checksum:
            raise ValueError(f"metric frame {sequence} at byte {at} is damaged")
        yield Frame(sequence, end)
        at = end


class _Spool:
    """Appends records to a file, numbered from 1, each as a whole or not at all.

    A full disk stops no training: records wait in memory until there is room again, the oldest
    giving way beyond `MAX_WAITING_BYTES`. They are numbered when they are written, so none is
    missed by who reads them.
    """

    def __init__(self, path: Path, encode: Callable[[int, bytes], bytes], after: int) -> None:
        self.path = path
        self._encode = encode
        self._sequence = after
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0

    def append(self, body: bytes) -> None:
        self._waiting.append(body)
        self._waiting_bytes += len(body)
        while self._waiting:
            if not append_whole(self.path, self._encode(self._sequence + 1, self._waiting[0])):
                break
            self._sequence += 1
            self._drop_oldest()
        while self._waiting_bytes > MAX_WAITING_BYTES:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        self._waiting_bytes -= len(self._waiting.popleft())


class MetricSpool:
    """Appends a rank's metric frames to its file, numbered from 1 for the life of the writer.

    `after` is the newest number in the file, where another process of the rank wrote before.
    """

    def __init__(self, path: Path, after: int = 0) -> None:
        self.path = path
        self._spool = _Spool(path, encode_frame, after)

    def append(self, tables: Sequence[MetricTable]) -> None:
        """Write one frame. A kill leaves a torn tail at most."""
        self._spool.append(encode_tables(tables))


class EventSpool:
    """Appends a rank's events to its file, numbered from 1 for the life of the writer."""

    def __init__(self, path: Path, rank: int, after: int = 0) -> None:
        self.path = path
        self.rank = rank
        self._spool = _Spool(path, _encode_event, after)
        self._lock = threading.Lock()

    def append(self, kind: str, data: dict[str, Any]) -> None:
        """Write one event. Any thread may call it: checkpoints are committed in the background."""
        event = RankEvent.model_validate(
            {"sequence": 0, "time": time.time(), "rank": self.rank, "kind": kind, "data": data}
        )
        fields = event.model_dump(mode="json", exclude={"sequence"})
        with self._lock:
            self._spool.append(json.dumps(fields, separators=(",", ":")).encode())


def _encode_event(sequence: int, fields: bytes) -> bytes:
    return b'{"sequence":%d,' % sequence + fields.removeprefix(b"{") + b"\n"


def append_whole(path: Path, data: bytes) -> bool:
    """Append bytes to a file of this process; False, and nothing appended, on a full disk."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    except OSError as error:
        return _refuse_unless_full(error)
    try:
        size = os.fstat(fd).st_size
        view = memoryview(data)
        try:
            while view:  # a signal may cut a write short
                view = view[os.write(fd, view) :]
        except OSError as error:
            # Whatever followed half a record could not be read.
            os.ftruncate(fd, size)
            return _refuse_unless_full(error)
    finally:
        os.close(fd)
    return True


def _refuse_unless_full(error: OSError) -> bool:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return False
    raise error


def replace_json(path: Path, model: BaseModel) -> None:
    """Replace a file by a model's JSON; a reader sees the old or the new one, never half."""
    temporary = path.with_name(path.name + f".{os.getpid()}.tmp")
    temporary.write_text(model.model_dump_json())
    temporary.replace(path)
