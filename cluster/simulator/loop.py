"""An event loop in which no time passes but what is waited for, and nothing happens beside it."""

import asyncio
import contextvars
import selectors
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_running: contextvars.ContextVar["Process | None"] = contextvars.ContextVar("process", default=None)


Later = tuple[float, Callable[..., object], tuple[Any, ...]]
"""Seconds after which something happens, and what: see `later`."""


class StuckError(Exception):
    """Nothing is left that could ever happen."""


class _Time(selectors.SelectSelector):
    """Waiting makes it later; no file is ever ready."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise StuckError
        self.now += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs the same coroutines in the same order every time.

    What is handed to a thread is done at once, in its place: real threads have no virtual time.
    """

    def __init__(self) -> None:
        self._passing = _Time()
        super().__init__(self._passing)
        self.set_task_factory(_make_task)  # type: ignore[arg-type]

    def time(self) -> float:
        """Return seconds since the loop was made."""
        return self._passing.now

    def pending(self) -> list[Later]:
        """Return what was handed to `later` and is not due yet: after how many seconds, and what.
        Of processes nothing may be left."""
        handles: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        callbacks = [(h.when(), h._callback) for h in handles if not h.cancelled()]  # type: ignore[attr-defined]
        callbacks.sort(key=lambda pair: pair[0])
        return [(when - self.time(), c.callback, c.args) for when, c in callbacks]

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        stoppable = _Callback(callback, args, context)
        stoppable.handle = super().call_soon(stoppable, context=stoppable.context)
        return stoppable.handle

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        stoppable = _Callback(callback, args, context)
        stoppable.handle = handle = super().call_at(when, stoppable, context=stoppable.context)
        return handle

    def run_in_executor(
        self, executor: object, func: Callable[[*Ts], T], *args: *Ts
    ) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


class _Callback:
    """Something that the loop is to call; it waits where its process is stopped."""

    __slots__ = ("args", "callback", "context", "handle")

    handle: asyncio.Handle

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> None:
        self.callback = callback
        self.args = args
        # One without variables is false.
        self.context = contextvars.copy_context() if context is None else context

    def __call__(self) -> None:
        process = _running.get()
        if process is not None and process.stopped:
            process.due.append(self)
        elif not self.handle.cancelled():
            self.callback(*self.args)


class Process:
    """Tasks that end together, as those of a process do when it is killed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.stopped = False
        """By SIGSTOP: time passes, and it does nothing."""
        self.due: list[_Callback] = []
        """Callbacks that wait until it continues."""
        self.tasks: dict[asyncio.Task[Any], None] = {}
        """In the order in which they began; a set would have another one in every run."""

    def spawn(self, work: Coroutine[Any, Any, T], name: str) -> "asyncio.Task[T]":
        context = contextvars.copy_context()
        context.run(_running.set, self)
        task = asyncio.get_running_loop().create_task(work, name=name, context=context)
        self.note(task)
        return task

    def note(self, task: "asyncio.Task[Any]") -> None:
        """Take a task for one of its own."""
        if task not in self.tasks:
            self.tasks[task] = None
            # Not in the context of its caller, whose process may be stopped by then.
            task.add_done_callback(lambda done: self.tasks.pop(done, None), context=Context())

    def stop(self) -> None:
        self.stopped = True

    def resume(self) -> None:
        """Run the callbacks that became due meanwhile, in their order."""
        self.stopped = False
        due, self.due = self.due, []
        loop = asyncio.get_running_loop()
        for callback in due:
            loop.call_soon(callback, context=callback.context)

    async def kill(self) -> None:
        """End every task where it stands. What they would still do to the world the world refuses,
        by asking whether their process is alive."""
        self.alive = False
        self.resume()
        while self.tasks:
            for task in list(self.tasks):
                task.cancel()
            await asyncio.sleep(0)


def later(seconds: float, callback: Callable[..., object], *args: Any) -> None:
    """Schedule an event that belongs to no process."""
    asyncio.get_running_loop().call_later(seconds, callback, *args, context=Context())


def _make_task(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, T],
    **options: Any,
) -> "asyncio.Task[T]":
    task = asyncio.Task(work, loop=loop, **options)
    context = options.get("context")
    process = _running.get() if context is None else context.get(_running)
    if process is not None:
        process.note(task)
    return task
