"""DDP's communication hook: gradients are combined by an algorithm and a compression of ours.

Buckets, and the overlap with the backward pass, stay DDP's. It calls the hook with each bucket as
soon as that is full, on all ranks in the same order, and continues the backward pass; a thread
of this rank combines one bucket after the other, in a process group that nothing else uses.
"""

import weakref
from collections.abc import Callable, Mapping
from functools import partial
from queue import SimpleQueue
from threading import Event, Lock, Thread

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.futures import Future

from trainhall.distributed import breakable
from trainhall.distributed.collectives.errors import CollectiveInputError
from trainhall.distributed.compression.choose import choose
from trainhall.distributed.compression.interface import Bucket, Compression
from trainhall.distributed.exchange import OpenExchange, open_exchange
from trainhall.parallelism.data_parallel import ddp
from trainhall.parallelism.data_parallel.ddp import Replicas
from trainhall.parallelism.data_parallel.gradient_sync import DEFAULT_RATIO, SyncOptions
from trainhall.parallelism.strategy import Tools

_Layout = tuple[int, torch.dtype]
_PATIENCE_SECONDS = 1.0
"""Time for the thread to notice that connections were closed."""


class GradientHook:
    """One rank's communication hook, for `register_comm_hook(None, hook.combine)`.

    Args:
        exchange: in a group of its own.
        parameters: of the model, by name.

    Attributes:
        compression: what is sent of each bucket; it may be asked for its state between steps.
        tools: those of the present step; set before its last backward pass.

    Raises:
        CollectiveInputError: a parameter has no floating-point gradient.
    """

    def __init__(
        self,
        exchange: OpenExchange,
        compression: Compression,
        parameters: Mapping[str, nn.Parameter],
        device: torch.device,
    ) -> None:
        for name, parameter in parameters.items():
            if not parameter.is_floating_point():
                raise CollectiveInputError(
                    f"{name} is of {parameter.dtype}, but only floating-point gradients can "
                    "be synchronized so: set gradient_sync to native, without compression"
                )
        self.compression = compression
        self.tools: Tools
        self._exchange = exchange
        self._names: dict[Tensor, str] = {p: name for name, p in parameters.items()}
        on_gpu = device.type == "cuda"
        self._devices: list[int | str | torch.device] | None = [device] if on_gpu else None
        self._stream = torch.cuda.Stream(device) if on_gpu else None
        self._thread = _Worker("gradient sync")
        self._layouts: dict[int, _Layout] = {}
        self._sent: dict[int, int] = {}
        """Bytes that the newest exchange of each bucket has sent."""
        self._failure: Exception | None = None
        self._in_collective = _InCollective()
        self._begun: list[tuple[Tensor, Future[Tensor]]] = []

    def combine(self, _: None, bucket: dist.GradBucket) -> Future[Tensor]:
        """Begin to replace a bucket of this rank's gradients by the mean over the ranks."""
        given = Bucket(
            index=bucket.index(),
            flat=bucket.buffer(),
            gradients=tuple(bucket.gradients()),
            names=tuple(self._names[parameter] for parameter in bucket.parameters()),
        )
        done: Future[Tensor] = Future(devices=self._devices)
        ready = None if self._stream is None else torch.cuda.current_stream().record_event()
        self._thread.submit(partial(self._complete, given, ready, done))
        if self._stream is None:
            self._begun.append((given.flat, done))
            if bucket.is_last():
                # Ahead of DDP's own, which waits for the futures.
                torch.autograd.Variable._execution_engine.queue_callback(self._end)
        return done

    def _end(self) -> None:
        """Wait until the thread has combined all; but not, once the group of ranks is broken off,
        for a message that Gloo lost."""
        begun, self._begun = self._begun, []
        handle, ended = breakable.present(), Event()
        self._thread.submit(ended.set)
        while not ended.wait(breakable.LOOK_SECONDS):
            if not handle.broken_off or ended.wait(_PATIENCE_SECONDS):
                continue
            if self._in_collective.abandon():
                self._failure = handle.abandon_work()
                for flat, done in begun:
                    if not done.done():
                        done.set_result(flat)
                return

    def check(self) -> None:
        """Raise what went wrong in the backward pass that has just ended.

        Not through the future: DDP would take the exception for a tensor, and report something
            else.

        Raises:
            CollectiveError, CollectiveInputError: the gradients are of no use.
        """
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    @property
    def sent_bytes(self) -> int:
        """Bytes that this rank has sent in the newest step."""
        return sum(self._sent.values())

    def _complete(
        self, bucket: Bucket, ready: torch.cuda.Event | None, done: Future[Tensor]
    ) -> None:
        if self._in_collective.is_abandoned:
            return
        with torch.cuda.stream(self._stream), torch.no_grad():
            if ready is not None:
                ready.wait()
            try:
                if self._failure is None:
                    self._average(bucket)
            except AbandonedThreadError:
                return  # no caller waits for it
            except Exception as error:
                self._failure = error
            done.set_result(bucket.flat)

    def _average(self, bucket: Bucket) -> None:
        flat = bucket.flat
        layout = (flat.numel(), flat.dtype)
        if self._layouts.get(bucket.index) != layout:
            if flat.layout is not torch.strided:
                raise CollectiveInputError(
                    f"the gradient of {bucket.names[0]} is sparse and cannot be synchronized "
                    "so: set gradient_sync to native, without compression"
                )
            with self._in_collective:
                self._exchange.agree(flat)
            self._layouts[bucket.index] = layout
        flat.div_(self._exchange.world_size)
        watched = _Watched(self._exchange, self._in_collective, self.tools)
        before = self._exchange.sent_bytes
        self.compression.combine(bucket, watched)
        self._sent[bucket.index] = self._exchange.sent_bytes - before
        watched.combined()


class _Watched:
    """An exchange, with the clock that separates a compression's own time from that of sending."""

    def __init__(
        self, exchange: OpenExchange, in_collective: "_InCollective", tools: Tools
    ) -> None:
        self.rank = exchange.rank
        self.world_size = exchange.world_size
        self._exchange = exchange
        self._in_collective = in_collective
        self._tools = tools
        self._since = tools.now()

    def sum(self, tensor: Tensor) -> None:
        self.combined()
        with self._in_collective:
            self._exchange.sum(tensor)
        self._sent()

    def gather(self, tensor: Tensor) -> Tensor:
        self.combined()
        with self._in_collective:
            rows = self._exchange.gather(tensor)
        self._sent()
        return rows

    def combined(self) -> None:
        """Count the time since its last call or the exchange's as compression."""
        now = self._tools.now()
        self._tools.compressed(self._since, now)
        self._since = now

    def _sent(self) -> None:
        now = self._tools.now()
        self._tools.sent(self._since, now)
        self._since = now


class AbandonedThreadError(Exception):
    """This thread was abandoned, and what it keeps of the job belongs to another."""


class _InCollective:
    """Entered while the thread is in a collective, which may never end.

    Outside of it the thread computes, also on what is kept between steps, and is always waited for.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._is_inside = False
        self.is_abandoned = False

    def __enter__(self) -> None:
        self._is_inside = True

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_inside = False
            if self.is_abandoned:
                raise AbandonedThreadError

    def abandon(self) -> bool:
        """Abandon the thread, which then ends, if it is in a collective; return whether it is."""
        with self._lock:
            self.is_abandoned = self._is_inside
            return self.is_abandoned


class HookedReplicas(Replicas):
    """Replicas whose gradients this hook combines."""

    def __init__(
        self, model: nn.Module, options: SyncOptions, *, device: torch.device, bucket_mb: float
    ) -> None:
        """Hook the replicas.

        Raises:
            CollectiveInputError, ScheduleError, RankEnvironmentError: the ranks cannot do so.
        """
        self._options = options
        self.compresses = options.compression != "none"
        self._hook: GradientHook | None = None
        super().__init__(model, device=device, bucket_mb=bucket_mb)

    def _spread(self, model: nn.Module, device: torch.device, bucket_mb: float) -> nn.Module:
        options = self._options
        hook = GradientHook(
            open_exchange(options.algorithm, device, servers=options.servers),
            choose(options.compression, options.ratio or DEFAULT_RATIO),
            {name: p for name, p in model.named_parameters() if p.requires_grad},
            device,
        )
        self._hook = hook
        return ddp.apply(model, device=device, bucket_mb=bucket_mb, hook=hook)

    def _backward_and_average(self, loss: Tensor, tools: Tools) -> None:
        assert self._hook is not None
        self._hook.tools = tools
        super()._backward_and_average(loss, tools)

    @property
    def sent_bytes(self) -> int | None:
        return self._hook.sent_bytes if self._hook is not None else None

    def average_gradients(self) -> None:
        assert self._hook is not None
        self._hook.check()
        self._check_average()

    def sync_state(self) -> dict[str, Tensor]:
        return self._hook.compression.state_dict() if self._hook is not None else {}

    def load_sync_state(self, state: Mapping[str, Tensor]) -> None:
        if self._hook is not None:
            self._hook.compression.load_state_dict(state)


class _Worker:
    """A thread that does one thing after the other, and ends once it has no references left.

    It is a daemon: a rank that fails while its peers are silent must not wait for them to end.
    """

    def __init__(self, name: str) -> None:
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        Thread(target=_work, args=(self._tasks,), name=name, daemon=True).start()
        weakref.finalize(self, self._tasks.put, None)

    def submit(self, task: Callable[[], None]) -> None:
        self._tasks.put(task)


def _work(tasks: "SimpleQueue[Callable[[], None] | None]") -> None:
    while (task := tasks.get()) is not None:
        task()
        del task  # it refers to the hook, which has the worker
