"""A rank's entry point: from its environment and launch to its exit code."""

import faulthandler
import gc
import os
import sys
import traceback
from pathlib import Path

import torch

from trainhall.distributed import broken, process_group
from trainhall.distributed.environment import RankEnvironment, required
from trainhall.parallelism.degrees import DegreesError
from trainhall.training.common.sample_order import SamplePositionError, TooFewSamplesError
from trainhall.training.data.prefetch import DataWorkerDiedError
from trainhall.training.elastic import loop as elastic
from trainhall.training.elastic.membership import RegroupTimeoutError
from trainhall.training.event_log import EventLogger
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.link.launch import Launch
from trainhall.training.link.spool import EventSpool, MetricSpool
from trainhall.training.link.status import EXIT_NOT_REGROUPED
from trainhall.training.loop import loop
from trainhall.training.process import deterministic, packages
from trainhall.training.process.device import GpuMissingError, own_gpu
from trainhall.training.process.rank_context import RankContext
from trainhall.training.process.user_traceback import UserTraceback
from trainhall.training.tasks.base import BadDataError
from trainhall.training.tasks.own import BadTaskError
from trainhall.training.verify import trace

log = EventLogger(__name__)

EXIT_FAILED = 1
FINAL = (DegreesError, BadTaskError, BadDataError, SamplePositionError, TooFewSamplesError)
"""Exceptions that another attempt would only raise again: what the user gave has to change."""


def main() -> int:
    """Run this process's rank of a built-in task.

    Exceptions become a `failure` event and an exit code of 1. The caller must leave with `os._exit`
    after flushing: the destructors of Gloo's threads can deadlock.
    """
    # A crash in native code leaves no other word of where it was.
    faulthandler.enable()
    environment = RankEnvironment.read(os.environ)
    folder = AttemptFolder(Path(required(os.environ, "TRAINHALL_ATTEMPT_FOLDER")))
    # Without a shim a rank is of the first.
    generation = int(os.environ.get("TRAINHALL_GENERATION", "1"))
    events = EventSpool(folder.events(environment.rank, generation), environment.rank)
    launch: Launch | None = None
    try:
        launch = read_launch(folder, generation)
        metrics = MetricSpool(folder.metrics(environment.rank, generation))
        return train(launch, environment, folder, events, metrics)
    except (Exception, SystemExit) as error:
        # A user's task that calls `sys.exit` has not completed.
        report_failure(error, launch, environment.rank, events)
        return EXIT_NOT_REGROUPED if isinstance(error, RegroupTimeoutError) else EXIT_FAILED


def train(
    launch: Launch,
    environment: RankEnvironment,
    folder: AttemptFolder,
    events: EventSpool,
    metrics: MetricSpool,
) -> int:
    """Train as the launch says; returns the exit code."""
    if launch.code is not None:
        sys.path.insert(0, launch.code)  # a task of the user's own lies there
    if environment.rank == 0:
        packages.report(events)
    device = choose_device(launch, environment)
    torch.set_num_threads(threads_per_rank(environment))
    if launch.spec.training.reproducible:
        deterministic.choose_kernels(device)
    # What was imported lives as long as the process: a collection would walk all of it in the
    # middle of a step and, in a forked process, copy its pages.
    gc.freeze()
    user_traceback = user_traceback_of(launch)
    describe = user_traceback.typed_message if user_traceback is not None else _typed
    context = RankContext(environment, launch, folder, device, events, metrics, describe)
    if launch.in_place:
        return elastic.run(context)
    namespace = f"{launch.job_id}/{launch.attempt}/{launch.generation}"
    with process_group.joined(environment, device=device, namespace=namespace):
        run = loop.run if launch.trace is None else trace.run
        return run(context)


def report_failure(
    error: BaseException, launch: Launch | None, rank: int, events: EventSpool
) -> None:
    """Append a `failure` event, and write the error to the rank's log."""
    text = traceback.format_exc()
    message = _message(error, launch)
    events.append(
        "failure",
        {
            "type": type(error).__name__,
            "message": message,
            "traceback": text,
            "final": isinstance(error, FINAL),
            "worker_signal": error.ended_by if isinstance(error, DataWorkerDiedError) else None,
        },
    )
    # The message explains what the user gave, unless code of theirs raised it.
    is_explained = isinstance(error, FINAL) and error.__cause__ is None
    log.error("rank_failed", rank=rank)
    words = f"{type(error).__name__}: {message}" if is_explained else text
    print(words, file=sys.stderr)  # noqa: T201 - the rank's log


def _message(error: BaseException, launch: Launch | None) -> str:
    if broken.is_broken(error) and (words := broken.message_of(error)) is not None:
        return words  # no line of the user's is to blame
    user_traceback = None if launch is None else user_traceback_of(launch)
    # The messages of Trainhall's own exceptions say already where they come from.
    if user_traceback is None or type(error).__module__.startswith("trainhall."):
        message = str(error)
    else:
        message = user_traceback.message(error)
    if launch is None or launch.code is None:
        return message
    # The user knows the folder that was sent, not this attempt's copy of it.
    return message.replace(f"{launch.code}/", "")


def user_traceback_of(launch: Launch) -> UserTraceback | None:
    """Return what finds the lines of the user's own task in a traceback; None for a built-in."""
    task = launch.spec.task
    return UserTraceback(task.name) if task is not None and task.is_own else None


def _typed(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def read_launch(folder: AttemptFolder, generation: int) -> Launch:
    """Read the launch that this rank was started for; there may be a newer one by now."""
    group = folder.group(generation)
    path = group if group.exists() else folder.launch
    return Launch.model_validate_json(path.read_bytes())


def choose_device(launch: Launch, environment: RankEnvironment) -> torch.device:
    """Choose the rank's device: the CPU, or its GPU among those in CUDA_VISIBLE_DEVICES."""
    slot = next(slot for slot in launch.ranks if slot.rank == environment.rank)
    if slot.device_kind == "cpu":
        return torch.device("cpu")
    if torch.cuda.device_count() == 0:
        raise GpuMissingError(
            f"rank {environment.rank} was given GPU {slot.device_index}, but torch "
            f"{torch.__version__} sees none; check nvidia-smi, CUDA_VISIBLE_DEVICES and that a "
            "CUDA build of torch is installed"
        )
    return own_gpu(environment.local_rank)


def threads_per_rank(environment: RankEnvironment) -> int:
    """Return OMP_NUM_THREADS, which a forked process would ignore, or a fair share of the cores."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    if wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    return max(1, (os.cpu_count() or 1) // environment.local_world_size)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
