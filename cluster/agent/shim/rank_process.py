"""Starting one rank: its environment, its output files, and the two ways to bring it up."""

import contextlib
import gc
import importlib
import io
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, Protocol, cast

from trainhall.cluster.agent.containers.processes import ContainerProcesses
from trainhall.cluster.agent.os_support import linux
from trainhall.cluster.agent.os_support.processes import MARK
from trainhall.cluster.agent.shim import script_launch
from trainhall.cluster.agent.shim.hang import flight_record
from trainhall.cluster.agent.shim.masked_output import MaskedOutput
from trainhall.cluster.wire.writers import rank_writer
from trainhall.training.link.folder import OUTPUTS_VARIABLE, AttemptFolder, outputs_folder
from trainhall.training.link.launch import Launch, RankSlot, Rendezvous
from trainhall.training.link.secrets.api_access import TOKEN_VARIABLE, load_api_access
from trainhall.training.link.secrets.masking import NAMES_VARIABLE
from trainhall.training.link.spool import EventSpool
from trainhall.training.process.forked import (
    EXIT_CRASHED,
    PADDING_VARIABLE,
    close_files,
    reseed,
)
from trainhall.training.spec import parameters
from trainhall.training.spec.world.data import variable_of

RANK_MODULE = "trainhall.training.rank"

_SECRETS = (TOKEN_VARIABLE, "TRAINHALL_JOIN_TOKEN", "DATABASE_URL")

NO_SECRETS: Mapping[str, str] = MappingProxyType({})
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND
_STORE_PREFIX = "TRAINHALL_STORE_PREFIX"
"""As `distributed.environment` reads it."""


class Served(Protocol):
    """Something that the shim serves to ranks."""

    def variables(self, rank: int, env: Mapping[str, str]) -> Mapping[str, str]:
        """Return the variables by which a rank finds it, beside those that it has."""


_OF_THE_HOST = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "XDG_*", "LD_*", "PYTHON*",
    "VIRTUAL_ENV", "CONDA_*", "CUDA_HOME", "CUDA_PATH", "SSL_*", "*_CA_BUNDLE", "HF_HOME",
    "*_CACHE", "*_CACHE_DIR", "TORCH_HOME", PADDING_VARIABLE,
)  # fmt: skip
"""Variables that say where things are on the host: containers have their own."""
_OF_THE_AGENT = ("PYTHONPATH", "PYTHONHOME", "CONDA_PREFIX", "CONDA_DEFAULT_ENV")
"""Variables by which the agent's packages would come before those of the job."""


def writer_name(launch: Launch, rank: int, generation: int | None = None) -> str:
    """Return a process's name as a writer, from the rank and the generation that it began with;
    without the latter, that of the launch."""
    return rank_writer(launch.job_id, launch.attempt, generation or launch.generation, rank)


def environment(
    base: Mapping[str, str],
    folder: AttemptFolder,
    launch: Launch,
    slot: RankSlot,
    rendezvous: Rendezvous,
    tracking: Served | None = None,
    secrets: Mapping[str, str] = NO_SECRETS,
) -> dict[str, str]:
    """Build a rank's environment: the host's, the user's, then what `torchrun` sets."""
    local = len(launch.ranks)
    env = {k: v for k, v in base.items() if k not in _SECRETS}
    if launch.container is not None:
        env = {k: v for k, v in env.items() if not any(fnmatchcase(k, n) for n in _OF_THE_HOST)}
        if os.geteuid() != 0:
            env["HOME"] = str(folder.path)  # that of the image is another user's
    env["PYTHONUNBUFFERED"] = "1"
    # NVML, by which the agent numbers GPUs, counts in this order; CUDA's own default is another.
    env.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    env.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    env.setdefault("TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT")
    # Of an agent's ranks it is there: a device's share. Without one the host is theirs alone.
    env.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // local)))
    env = _with_environment(env, launch)
    if launch.spec.script is not None:
        env |= launch.spec.script.env
    if secrets:
        env |= {**secrets, NAMES_VARIABLE: ",".join(secrets)}
    gpus = [p.device_index for p in launch.ranks if p.device_kind == "cuda"]
    env["CUDA_VISIBLE_DEVICES"] = ",".join(str(index) for index in gpus)
    if gpus:
        env = flight_record.environment(folder, slot.rank) | env
    if tracking is not None:
        env |= tracking.variables(slot.rank, env)
    numbers = {
        "RANK": slot.rank,
        "LOCAL_RANK": slot.local_rank,
        "ROLE_RANK": slot.rank,
        "GROUP_RANK": launch.node_rank,
        "WORLD_SIZE": launch.world_size,
        "ROLE_WORLD_SIZE": launch.world_size,
        "LOCAL_WORLD_SIZE": local,
        "GROUP_WORLD_SIZE": launch.num_nodes,
        "MASTER_PORT": rendezvous.port,
        "TORCHELASTIC_RESTART_COUNT": launch.attempt - 1,
        "TORCHELASTIC_MAX_RESTARTS": launch.spec.recovery.max_restarts,
        "TRAINHALL_ATTEMPT": launch.attempt,
        "TRAINHALL_GENERATION": launch.generation,
    }
    access = load_api_access(folder.api_access) if launch.spec.api_token is not None else None
    if access is not None:
        # Together, lest the token goes to another coordinator that the spec names.
        env |= access.variables
    return env | {name: str(number) for name, number in numbers.items()} | {
        "MASTER_ADDR": rendezvous.address,
        _STORE_PREFIX: rendezvous.prefix,
        "ROLE_NAME": "default",
        "TORCHELASTIC_RUN_ID": launch.job_id,
        "TORCHELASTIC_ERROR_FILE": str(folder.rank(slot.rank) / "error.json"),
        # Built-in tasks find a store that the shim holds; in a script, rank 0 opens one.
        "TORCHELASTIC_USE_AGENT_STORE": str(launch.spec.script is None),
        "TRAINHALL_JOB_ID": launch.job_id,
        "TRAINHALL_WRITER": writer_name(launch, slot.rank),
        OUTPUTS_VARIABLE: str(outputs_folder(folder, launch)),
        **{variable_of(name): path for name, path in launch.data.items()},
        parameters.VARIABLE: json.dumps(launch.spec.parameters),
        MARK: str(folder.path),
    }  # fmt: skip


def _with_environment(base: Mapping[str, str], launch: Launch) -> dict[str, str]:
    """Return the variables of a rank before those of its script: what its environment adds.

    Args:
        base: those of the host.
    """
    env, spec = dict(base), launch.spec.environment
    if launch.environment is not None:
        env = {name: value for name, value in env.items() if name not in _OF_THE_AGENT}
        programs = str(Path(launch.environment.python).parent)
        env["VIRTUAL_ENV"] = launch.environment.path
        env["PATH"] = os.pathsep.join([programs, env.get("PATH", os.defpath)])
    env |= spec.variables
    folder = spec.source_in(launch.code)
    if spec.project is not None and folder is not None:
        # The project itself is not installed, since the environment is shared with other jobs.
        source = Path(folder, "src")
        added = [str(source if source.is_dir() else folder), env.get("PYTHONPATH", "")]
        env["PYTHONPATH"] = os.pathsep.join(filter(None, added))
    return env


def start(
    folder: AttemptFolder,
    launch: Launch,
    slot: RankSlot,
    rendezvous: Rendezvous,
    *,
    fork: bool,
    tracking: Served | None = None,
    secrets: Mapping[str, str] = NO_SECRETS,
    masked: MaskedOutput | None = None,
    container: ContainerProcesses | None = None,
) -> int:
    """Start a rank, as a child of this process or in its container, and return its pid.

    Args:
        tracking: what else the shim serves to its ranks.
        fork: run the built-in task in a copy of this process, which has torch imported.
        secrets: variables that it gets.
        masked: what its output passes; None: it writes to its files itself.
        container: of the attempt; None: it has none.
    """
    env = environment(os.environ, folder, launch, slot, rendezvous, tracking, secrets)
    folder.rank(slot.rank).mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError):  # the code has a file of that name, say
        outputs_folder(folder, launch).mkdir(parents=True, exist_ok=True)
    files = (folder.stdout(slot.rank), folder.stderr(slot.rank))
    script = launch.spec.script
    work: Callable[[], int]
    if script is not None:
        # The SDK in the script appends to the same file.
        events = EventSpool(folder.events(0), 0) if slot.rank == 0 else None
        work = partial(script_launch.execute, launch, script, env, events)
    elif fork:
        work = _run_task
    else:
        python = launch.environment.python if launch.environment else sys.executable
        work = partial(os.execve, python, [python, "-m", RANK_MODULE], env)
    begin = folder.path if launch.code is None else Path(launch.code)
    name = f"rank {slot.rank} {launch.job_id}"
    if container is None and masked is None:
        return fork_child(name, files, env, begin, work)
    opened: list[int] = []
    try:
        for path in files:
            passed = masked.add(path) if masked is not None else os.open(path, _APPEND, 0o644)
            opened.append(passed)  # one by one: the second may fail
        output = opened[0], opened[1]
        if container is None:
            return fork_child(name, output, env, begin, work)
        argv, cwd = _inner_command(launch, begin)
        return container.start(argv, env, cwd, output)
    finally:
        for fd in opened:
            os.close(fd)


def _inner_command(launch: Launch, begin: Path) -> tuple[list[str], str]:
    """Return the command of a rank in a container, and the folder that it begins in."""
    assert launch.container is not None
    script, python = launch.spec.script, launch.container.python
    if script is not None:
        return script_launch.inner_command(launch, script, python)
    return [python, "-m", RANK_MODULE], str(begin)


def _run_task() -> int:
    ignore_what_python_ignores()
    code = importlib.import_module(RANK_MODULE).main()
    return int(code)


def fork_child(
    name: str,
    output: tuple[Path | int, Path | int],
    env: dict[str, str],
    work_folder: Path,
    work: Callable[[], int],
    keep: tuple[int, ...] = (),
) -> int:
    """Fork a child that runs `work` and leaves with its result; returns its pid.

    The child leads a session of its own, dies with this process, writes to `output` (files or
    descriptors), has the given environment (others see it too, see `linux.show_environment`) and no
    other open file but `keep`.
    """
    parent = os.getpid()
    # What is in the buffers now would be written by both.
    sys.stdout.flush()
    sys.stderr.flush()
    # Objects of before the fork stay on shared pages: the collector does not touch them any more.
    gc.freeze()
    pid = os.fork()
    if pid:
        return pid
    code = EXIT_CRASHED
    try:
        linux.die_with_parent(parent)
        os.setsid()
        _redirect(output)
        close_files(keep)
        fresh_state(env)
        linux.set_name(name)
        linux.show_environment({k: v for k, v in env.items() if _identifies_rank(k)})
        os.chdir(work_folder)
        code = work()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else (0 if end.code is None else 1)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _identifies_rank(name: str) -> bool:
    if name in (_STORE_PREFIX, TOKEN_VARIABLE):
        return False  # secrets of the attempt
    return name.startswith("TRAINHALL_") or name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")


def _redirect(output: tuple[Path | int, Path | int]) -> None:
    """Redirect input from nothing, and output to files at once, line by line."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    for fd, to in zip((1, 2), output, strict=True):
        opened = to if isinstance(to, int) else os.open(to, _APPEND, 0o644)
        os.dup2(opened, fd)
    for fd in (0, 1, 2):
        os.set_inheritable(fd, True)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - it lives as long as the process
    for fd, attribute in ((1, "stdout"), (2, "stderr")):
        raw = open(fd, "wb", buffering=0, closefd=False)  # noqa: SIM115
        # As `python -u` does: nothing is buffered, so a kill loses no line.
        stream = io.TextIOWrapper(
            cast("BinaryIO", raw), encoding="utf-8", errors="backslashreplace", write_through=True
        )
        setattr(sys, attribute, stream)
        setattr(sys, f"__{attribute}__", stream)


def ignore_what_python_ignores() -> None:
    """Ignore the signals that Python ignores, in a fork that continues as Python.

    Without it a rank dies of its peer's death: Gloo may write to a connection that was just
    closed.
    """
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)


def fresh_state(env: Mapping[str, str]) -> None:
    """Make a fork as good as new: default signals, its own environment and random numbers."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if signal.getsignal(number) not in (signal.SIG_DFL, None):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.environ.clear()
    os.environ.update(env)
    reseed()
