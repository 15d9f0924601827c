"""The way of an attempt to its shim on this host: plan, folder, start."""

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

import psutil

from trainhall.cluster.agent import threads
from trainhall.cluster.agent.attempt import Attempt
from trainhall.cluster.agent.containers.attempt_containers import AttemptContainers
from trainhall.cluster.agent.containers.engine import EngineError
from trainhall.cluster.agent.coordinator_link.http_api import (
    CoordinatorApi,
    RefusedError,
)
from trainhall.cluster.agent.coordinator_link.retry import until_answered
from trainhall.cluster.agent.data.preparation import DataSets, PreparedData
from trainhall.cluster.agent.data.programs import DataFailedError
from trainhall.cluster.agent.data_dir import DataDir
from trainhall.cluster.agent.environments.image import ImageEnvironments, PreparedContainer
from trainhall.cluster.agent.environments.preparation import Environments, Prepared
from trainhall.cluster.agent.environments.uv import EnvironmentFailedError
from trainhall.cluster.agent.event_files import tail
from trainhall.cluster.agent.git.clone import Cloning
from trainhall.cluster.agent.git.errors import CloneError
from trainhall.cluster.agent.job_settings import JobSettings, cgroup_name
from trainhall.cluster.agent.launch import planner
from trainhall.cluster.agent.launch.code_cache import CodeCache, CodeUnavailableError
from trainhall.cluster.agent.launch.job_code import JobCode
from trainhall.cluster.agent.launch.warm_client import (
    SHIM_MODULE,
    TorchUnavailableError,
    WarmParent,
    WarmParentError,
)
from trainhall.cluster.agent.os_support import accounts, cgroups, linux, processes
from trainhall.cluster.agent.os_support.accounts import Owner
from trainhall.cluster.agent.run_as import NoFreeUserError
from trainhall.cluster.agent.shim import folder_ipc, outcome
from trainhall.cluster.agent.shim.confinement import Confinement
from trainhall.cluster.agent.shipping import (
    checkpoint_transfer,
    output_restore,
    unreported_checkpoints,
)
from trainhall.cluster.agent.shipping.output_restore import KeptOutputs, OutputUnavailableError
from trainhall.cluster.agent.shipping.outputs import PREPARED
from trainhall.training.event_log import EventLogger
from trainhall.training.fencing import FencingToken
from trainhall.training.link.failure import Cause, Failure
from trainhall.training.link.folder import AttemptFolder, replace_json, working_folder
from trainhall.training.link.launch import AttemptContainer, CheckpointPlan, Launch
from trainhall.training.link.secrets.api_access import write_api_access
from trainhall.training.link.secrets.attempt_secrets import write_secrets
from trainhall.training.spec.plan import PlanningFailedError

logger = EventLogger(__name__)
T = TypeVar("T")

REFUSED_DATA = "its data sets cannot be recorded"
PREDICTION_SECONDS = 300.0
"""For a prediction, which only informs, while the job's devices wait."""


class CannotStartError(Exception):
    """The ranks of an attempt cannot be started on this host."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def _cannot_start(message: str, cause: Cause = Cause.NOT_STARTED) -> CannotStartError:
    return CannotStartError(Failure(message=message, cause=cause))


def _make_for(folder: Path, owner: Owner | None) -> None:
    """Make a folder of this agent's data folder that is the owner's; None: this agent's."""
    if owner is not None:
        if accounts.owner_of(folder) not in (None, owner):
            # Another job may have this user id by now.
            shutil.rmtree(folder)
        elif accounts.owner_of(folder) == owner:
            return
    folder.mkdir(parents=True, exist_ok=True)
    if owner is not None:
        accounts.hand_over(folder, owner)


def _is_folder_of(folder: Path, owner: Owner | None) -> bool:
    """Return whether there is a folder that its user can get to: a mount would lead them past the
    folders above it."""
    with contextlib.suppress(OSError), accounts.acting_as(owner):
        return folder.is_dir()
    return False


class Launcher:
    """Plans, prepares and starts attempts.

    Raises:
        CannotStartError: from each of its steps.
    """

    def __init__(
        self,
        data_dir: DataDir,
        api: CoordinatorApi,
        warm: WarmParent,
        settings: JobSettings,
        changed: Callable[[], None],
    ) -> None:
        self._data_dir = data_dir
        self._changed = changed
        self._api = api
        self._warm = warm
        self._environment = settings.environment
        self._run_as = settings.run_as
        self._cgroups = settings.cgroups
        self._memory = settings.memory
        self._preparing: dict[str, int] = {}
        """User ids of jobs whose folders are not theirs yet."""
        self._clones: set[int] = set()
        """Pids of git."""
        cloning = Cloning(
            settings.environment, self._clones, allows_files=settings.file_repositories
        )
        self._code = JobCode(CodeCache(data_dir.code, api), api, cloning)
        self.kept = KeptOutputs(data_dir.outputs)
        self._environments = Environments(data_dir, api, settings.environment)
        self._data = DataSets(data_dir, settings.environment)
        confined = settings.run_as is not None
        self._engine = settings.engine
        self._images = ImageEnvironments(
            data_dir.environments, api, settings.engine, confined=confined
        )
        self.containers = AttemptContainers(data_dir.path, settings.engine, confined=confined)
        self.launched = data_dir.read_launched()
        """The newest attempt and generation of each job that was launched here."""
        self.children: list[subprocess.Popen[bytes]] = []
        """Shims that this agent executed: an ended one stays in the process table until polled."""
        self._planners: set[int] = set()
        self._inside: list[subprocess.Popen[bytes]] = []
        """Processes that were started within attempts."""

    @property
    def pids(self) -> set[int]:
        """Return the pids of what this agent has started."""
        warm = {self._warm.pid} if self._warm.pid is not None else set()
        children = {child.pid for child in (*self.children, *self._inside)}
        running = self._clones | self._environments.running | self._data.running
        return children | self._planners | running | self._engine.running | warm

    def reap(self) -> None:
        """Take ended shims, and what they left to this agent, out of the process table."""
        self.children = [child for child in self.children if child.poll() is None]
        self._inside = [child for child in self._inside if child.poll() is None]
        if linux.adopts_orphans():
            processes.reap_adopted(self.pids)

    async def plan(self, attempt: Attempt) -> None:
        """Find the strategy of a job that leaves it to us, or predict its own. What runs follows
        from the answer."""
        assert attempt.launch.planning is not None
        own = attempt.launch.planning.own_strategy
        final = attempt.folder.path
        part = final.with_name(f".preparing-plan-{final.name}")
        prepared, data, python = None, None, sys.executable
        launch, variables = attempt.launch, self._environment
        try:
            owner = self._choose_owner(attempt.launch)
            self._data_dir.make_job_folder(attempt.launch.job_id)
            if attempt.launch.spec.environment.is_built:
                # It imports the task, and what the task needs.
                prepared = await self._prepare_environment(attempt, owner)
                python = prepared.built.python
            if launch.spec.data:
                data = await self._prepare_data(attempt, owner)
                launch = launch.with_data(data.paths)
                variables = {**variables, **data.variables}
            async with asyncio.timeout(PREDICTION_SECONDS if own else None):
                attempt.plan = await planner.plan(
                    launch,
                    partial(self._copy_code, attempt, owner),
                    part,
                    variables,
                    owner,
                    running=self._planners,
                    python=python,
                )
        except TimeoutError:
            attempt.plan_refusal = f"the planner took longer than {PREDICTION_SECONDS:g} s"
        except PlanningFailedError as error:
            if own:
                attempt.plan_refusal = str(error)
                return
            report = "\n".join([*error.lines, str(error)])
            message = f"planning its strategy failed: {error}"
            tail = report[-outcome.LOG_TAIL_BYTES :]
            failure = Failure(message=message, final=error.final, log_tail=tail)
            raise CannotStartError(failure) from error
        finally:
            self._preparing.pop(attempt.launch.job_id, None)
            for each in (prepared, data):
                if each is not None:
                    each.release()

    async def prepare(
        self, attempt: Attempt, write_last_ack: Callable[[AttemptFolder, Launch], None]
    ) -> None:
        """Fetch what the attempt starts from and make its folder, which appears at once."""
        final = attempt.folder.path
        part = AttemptFolder(final.with_name(f".preparing-{final.name}"))
        prepared, data = None, None
        try:
            owner = self._choose_owner(attempt.launch)
            plan = await self._prepare_checkpoints(attempt.launch, owner)
            launch = attempt.launch.model_copy(update={"checkpoint": plan})
            self._data_dir.make_job_folder(launch.job_id)
            part.path.mkdir()
            if launch.spec.code is not None:
                name = await self._copy_code(attempt, owner, part.path / "code")
                launch = launch.model_copy(
                    update={"code": str(part.path / "code"), "code_name": name}
                )
            await self._prepare_outputs(part, launch)
            await threads.finish(tail.prepare, part, launch)
            if launch.code is not None:
                launch = launch.model_copy(update={"code": str(final / "code")})
            log = ""
            if launch.spec.environment.image is not None and launch.ranks:
                found = await self._prepare_image(attempt)
                launch = launch.model_copy(update={"container": found.container})
                log = found.log
            if launch.spec.environment.is_built and launch.ranks:
                prepared = await self._prepare_environment(attempt, owner)
                launch = launch.model_copy(update={"environment": prepared.built})
                log = prepared.log
            if log:
                rank = launch.ranks[0].rank
                part.rank(rank).mkdir(parents=True, exist_ok=True)
                part.stdout(rank).write_text(log)
            if launch.spec.data and launch.ranks:
                data = await self._prepare_data(attempt, owner)
                await self._ask(partial(self._api.put_data, data.report), launch, REFUSED_DATA)
                launch = launch.with_data(data.paths)
            attempt.launch = launch
            replace_json(part.launch, launch)
            if launch.spec.api_token is not None and launch.ranks:
                access = await self._ask(self._api.api_access, launch, "it gets no API token")
                write_api_access(part.api_access, access)
            if launch.spec.secrets and launch.ranks:
                secrets = await self._secrets(launch)
                write_secrets(part.secrets, {name: secrets[name] for name in launch.spec.secrets})
            write_last_ack(part, launch)
            if owner is not None:
                await threads.finish(accounts.hand_over, part.path, owner)
            part.path.rename(final)
        finally:
            self._preparing.pop(attempt.launch.job_id, None)
            for each in (prepared, data):
                if each is not None:
                    each.release()
            # It is there only where something failed or was cancelled.
            if part.path.exists():
                await threads.finish(partial(shutil.rmtree, part.path, ignore_errors=True))

    async def _prepare_outputs(self, part: AttemptFolder, launch: Launch) -> None:
        """Put back the files of earlier attempts."""
        (part.path / PREPARED).touch()
        if not launch.ranks or (launch.attempt, launch.generation) == (1, 1):
            return
        rank = min(slot.rank for slot in launch.ranks)
        folder = working_folder(part, launch)
        try:
            await output_restore.restore(
                self._api, self.kept, launch.job_id, launch.attempt, rank, folder
            )
        except (OutputUnavailableError, OSError) as error:
            why = f"the files of the job's earlier attempts are not available on this host: {error}"
            raise _cannot_start(why) from error

    async def _prepare_environment(self, attempt: Attempt, owner: Owner | None) -> Prepared:
        """Lock and install the environment of an attempt, as far as that is still to be done."""

        folder = attempt.folder.path
        with self._preparation(attempt) as report:
            return await self._environments.prepare(
                attempt.launch,
                folder.with_name(f".preparing-environment-{folder.name}"),
                partial(self._copy_code, attempt, owner),
                report,
                owner,
            )

    async def _prepare_image(self, attempt: Attempt) -> PreparedContainer:
        """Fetch the image of an attempt, as far as that is still to be done."""
        with self._preparation(attempt) as report:
            return await self._images.prepare(attempt.launch, report)

    @contextlib.contextmanager
    def _preparation(self, attempt: Attempt) -> Iterator[Callable[[str], None]]:
        """Report the work on an environment, and why it fails."""
        try:
            yield partial(self._report_preparing, attempt)
        except EnvironmentFailedError as error:
            # Another attempt would find the same packages: a user changes them, or the host.
            raise CannotStartError(
                Failure(
                    message=f"its environment cannot be prepared: {error}",
                    final=True,
                    cause=error.cause,
                    log_tail=error.log_tail,
                )
            ) from error
        except OSError as error:
            why = f"its environment cannot be prepared on this host: {error}"
            raise _cannot_start(why) from error
        finally:
            if attempt.preparing is not None:
                self._report_preparing(attempt, None)

    async def _prepare_data(self, attempt: Attempt, owner: Owner | None) -> PreparedData:
        """Find or download the data sets of an attempt."""
        launch = attempt.launch
        secrets: Mapping[str, str] = {}
        if any(each.secrets for each in launch.spec.data):
            secrets = await self._secrets(launch)
        try:
            return await self._data.prepare(
                launch.spec.data, secrets, partial(self._report_preparing, attempt), owner
            )
        except DataFailedError as error:
            # Another attempt would find the same: a user changes the spec, or the host.
            message = f"{error} (on {socket.gethostname()})"
            failure = Failure(message=message, final=True, cause=error.cause)
            raise CannotStartError(failure) from error
        finally:
            if attempt.preparing is not None:
                self._report_preparing(attempt, None)

    def _report_preparing(self, attempt: Attempt, what: str | None) -> None:
        attempt.preparing = what
        self._changed()

    async def _copy_code(self, attempt: Attempt, owner: Owner | None, to: Path) -> str:
        """Put a copy of an attempt's code at `to`; return its name in the cache."""
        launch, folder = attempt.launch, attempt.folder.path
        before = attempt.preparing
        code = launch.spec.git_code
        token = code.token if code is not None else None
        try:
            return await self._code.copy(
                launch, to, folder.with_name(f".preparing-code-{folder.name}"),
                partial(self._report_preparing, attempt), owner=owner,
                token=(await self._secrets(launch))[token] if token is not None else None,
            )  # fmt: skip
        except CloneError as error:
            raise CannotStartError(
                Failure(
                    message=f"its code cannot be cloned: {error}",
                    final=not error.is_passing,
                    cause=error.cause,
                    log_tail=error.log_tail,
                )
            ) from error
        except (CodeUnavailableError, OSError) as error:
            why = f"the job's code is not available on this host: {error}"
            raise _cannot_start(why) from error
        finally:
            if attempt.preparing != before:
                self._report_preparing(attempt, before)

    async def _secrets(self, launch: Launch) -> Mapping[str, str]:
        return await self._ask(self._api.secrets, launch, "it gets no secrets")

    async def _ask(
        self, request: Callable[[str, int], Awaitable[T]], launch: Launch, refused: str
    ) -> T:
        """Ask the coordinator for something of an attempt; a refusal fails the job for good."""
        try:
            return await until_answered(
                partial(request, launch.job_id, launch.attempt), launch.job_id
            )
        except RefusedError as error:
            why = f"{refused}: {error.detail}"
            raise CannotStartError(
                Failure(message=why, final=True, cause=Cause.USER_ERROR)
            ) from None

    def _choose_owner(self, launch: Launch) -> Owner | None:
        """Return whom the attempt is to run as; None: as this agent."""
        if self._run_as is None:
            return None
        job_id = launch.job_id
        others = {uid for job, uid in self._preparing.items() if job != job_id}
        taken = self._data_dir.uids(but=job_id) | others
        try:
            owner = self._run_as.owner(job_id, launch.spec.project, taken)
        except NoFreeUserError as error:
            raise _cannot_start(str(error)) from None
        self._preparing[job_id] = owner.uid
        return owner

    async def _prepare_checkpoints(self, launch: Launch, owner: Owner | None) -> CheckpointPlan:
        """Make the folder of the job's checkpoints, and fetch the one to start from."""
        plan = launch.checkpoint
        if plan.upload:
            folder = self._data_dir.checkpoints(launch.job_id)
            await threads.finish(_make_for, folder, owner)
            plan = plan.model_copy(update={"folder": str(folder)})
            if plan.resume:
                # Later ranks get what the others hold.
                joins = launch.in_place and launch.generation > 1
                others = launch.num_nodes > 1
                try:
                    fetched = await checkpoint_transfer.fetch(
                        self._api, folder, launch.job_id, plan.resume,
                        other_hosts=others, needed=not joins, owner=owner,
                    )  # fmt: skip
                except checkpoint_transfer.CheckpointUnavailableError as error:
                    cause = Cause.BAD_CHECKPOINT if error.is_damaged else Cause.NOT_STARTED
                    raise _cannot_start(str(error), cause) from error
                plan = plan.model_copy(update={"resume": fetched.names, "lacking": fetched.lacking})
        elif plan.folder:
            # If that fails, the ranks report why, in terms of what they wanted to save.
            with contextlib.suppress(OSError):
                found = await asyncio.to_thread(self._look_into_shared, launch, owner)
                plan = plan.model_copy(update={"resume": [*found, *plan.resume]})
        return plan

    def _look_into_shared(self, launch: Launch, owner: Owner | None) -> list[str]:
        """Make the folder on shared storage; return what no event has named of it."""
        with accounts.acting_as(owner):
            folder = Path(launch.checkpoint.folder)
            if self._run_as is not None and not folder.exists():
                folder.mkdir(parents=True)
                folder.chmod(0o777 & ~self._run_as.umask)
            folder.mkdir(parents=True, exist_ok=True)
            return unreported_checkpoints.find_unrecorded(launch)

    async def start(self, attempt: Attempt) -> None:
        """Start a shim. First it is noted that the token was launched here, and never again is."""
        self.note_launched(attempt.token)
        attempt.starts += 1
        if attempt.launch.container is not None:
            await self._start_container(attempt, attempt.launch.container)
        try:
            fresh = attempt.launch.spec.environment.needs_new_process
            if attempt.launch.spec.script is None and linux.IS_LINUX and not fresh:
                try:
                    await self._warm.start_shim(
                        attempt.folder, self._data_dir.doorbell, self._confinement(attempt)
                    )
                except WarmParentError as error:
                    logger.warning("attempt_starts_cold", **attempt.log_fields, error=error)
                    attempt.process = self._execute(attempt)
            else:
                attempt.process = self._execute(attempt)
        except TorchUnavailableError as error:
            raise _cannot_start(str(error)) from error
        attempt.started_at = time.monotonic()

    async def _start_container(self, attempt: Attempt, container: AttemptContainer) -> None:
        folder, launch = attempt.folder.path, attempt.launch
        checkpoints = Path(launch.checkpoint.folder)
        owner = accounts.owner_of(folder)
        has_checkpoints = await asyncio.to_thread(_is_folder_of, checkpoints, owner)
        limited = self._cgroups is not None and self._cgroups.has_limits
        try:
            await self.containers.start(
                folder,
                container.with_mounts(launch.data.values()),
                owner or Owner(os.geteuid(), os.getegid()),
                [folder, *([checkpoints] if has_checkpoints else [])],
                gpus=any(slot.device_kind == "cuda" for slot in launch.ranks),
                memory=self._memory_limit() if limited else None,
            )
        except EngineError as error:
            raise _cannot_start(f"its container cannot be started: {error}") from error

    def _memory_limit(self) -> int:
        """Return the memory that an attempt may use, in bytes."""
        usable = cgroups.usable_memory(psutil.virtual_memory().total)
        return min(self._memory or usable, usable)

    def _confinement(self, attempt: Attempt) -> str:
        """Return the limits of an attempt, as JSON; empty: it has none."""
        found = Confinement()
        if self._cgroups is not None:
            group = self._cgroups.make(cgroup_name(attempt.folder), self._memory_limit())
            found.cgroup = str(group) if group is not None else None
        if self._run_as is not None:
            owner = accounts.owner_of(attempt.folder.path)
            if owner is None:
                # Prepared by an agent without the option: it would run as root.
                raise _cannot_start("the attempt was prepared before --run-as was given")
            found.user = self._run_as.job_user(owner, attempt.folder.path)
        return found.model_dump_json() if found != Confinement() else ""

    def note_launched(self, token: FencingToken) -> None:
        """Keep on disk that a token was launched here."""
        newest = self.launched.get(token.job_id)
        if newest is None or token > newest:
            others = {job: its for job, its in self.launched.items() if job != token.job_id}
            launched = {**others, token.job_id: token}
            self._data_dir.write_launched(launched)
            self.launched = launched

    def _execute(self, attempt: Attempt) -> subprocess.Popen[bytes]:
        confinement = self._confinement(attempt)
        with accounts.acting_as(accounts.owner_of(attempt.folder.path)):
            opened = folder_ipc.log_path(attempt.folder).open("ab")
        with opened as log:
            child = subprocess.Popen(
                [
                    *(sys.executable, "-m", SHIM_MODULE, str(attempt.folder.path)),
                    *("--doorbell", str(self._data_dir.doorbell)),
                    *(("--confinement", confinement) if confinement else ()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(self._environment),
                cwd="/",
                start_new_session=True,
            )
        self.children.append(child)
        return child

    def start_inside(self, attempt: Attempt, module: str, fd: int) -> subprocess.Popen[bytes]:
        """Start a module with the user, the limits and the mark of an attempt that runs.

        Args:
            fd: a file that it inherits.
        """
        confinement = self._confinement(attempt)
        child = subprocess.Popen(
            [
                *(sys.executable, "-m", module, str(attempt.folder.path), str(fd)),
                *(("--confinement", confinement) if confinement else ()),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**self._environment, processes.MARK: str(attempt.folder.path)},
            cwd="/",
            pass_fds=(fd,),
            start_new_session=True,
        )
        self._inside.append(child)
        return child
