"""The agent's data folder: where things lie, and that only one agent works in it.

<data-dir>/
    agent.lock                  locked by the agent that works here
    agent.json                  the node's credential, and the pinned certificate (mode 0600)
    launched.json               the newest token launched of each job
    doorbell                    named pipe that shims ring when their status changed
    attempts/<job>/<token>/     one folder per attempt (`training.link`), plus the agent's own
                                `shipped.json` and, where it ended the ranks, `agent-stopped`
    code/<name>/                code of jobs, unpacked (`agent.launch.code_cache`)
    environments/<key>/         Python environments of jobs (`agent.environments.store`)
    data/<key>/                 downloaded data sets of jobs (`agent.data.store`)
    checkpoints/<job>/          local checkpoints of jobs that upload them
    outputs/<job>/<sha256>      files of ended attempts, for the next ones
    logs/                       output of the warm parent
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from trainhall.cluster.agent.options import AgentError, DataDirInUseError
from trainhall.cluster.agent.os_support import accounts
from trainhall.cluster.file_lock import FileLock
from trainhall.cluster.tls import Anchor
from trainhall.cluster.wire.protocol import JoinReply
from trainhall.training.event_log import EventLogger
from trainhall.training.fencing import FencingToken
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.link.launch import Launch, load_launch

logger = EventLogger(__name__)

REMEMBERED_JOBS = 10_000


@dataclass(frozen=True)
class DataDir:
    path: Path
    is_shared: bool = False
    """Jobs run as other users, who pass through to what is theirs and read nothing else."""

    @property
    def doorbell(self) -> Path:
        return self.path / "doorbell"

    @property
    def attempts(self) -> Path:
        return self.path / "attempts"

    @property
    def warm_log(self) -> Path:
        return self.path / "logs" / "warm.log"

    def attempt(self, token: FencingToken) -> AttemptFolder:
        return AttemptFolder.below(self.attempts, token)

    @property
    def code(self) -> Path:
        return self.path / "code"

    @property
    def outputs(self) -> Path:
        return self.path / "outputs"

    @property
    def environments(self) -> Path:
        return self.path / "environments"

    @property
    def data(self) -> Path:
        return self.path / "data"

    def checkpoints(self, job_id: str) -> Path:
        return self.path / "checkpoints" / job_id

    def make(self) -> None:
        """Make the folder, private to the user but for the ways to attempts of others.

        Raises:
            AgentError: it cannot be made.
        """
        try:
            inner = (self.attempts, self.path / "checkpoints", self.path / "logs", self.code,
                     self.outputs)  # fmt: skip
            for folder in (self.path, *inner):
                folder.mkdir(parents=True, exist_ok=True)
            shared = self.is_shared or self._has_foreign_attempts()
            for folder in (self.path, self.attempts, self.path / "checkpoints"):
                folder.chmod(0o711 if shared else 0o700)
            for folder in (self.path / "logs", self.code, self.outputs):
                folder.chmod(0o700)
        except OSError as error:
            raise self._unusable(error) from None

    def _unusable(self, error: OSError) -> AgentError:
        return AgentError(f"--data-dir {self.path} cannot be used: {error.strerror}; give another")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder, and work in it alone.

        Raises:
            DataDirInUseError: another agent does.
            AgentError: it cannot be made.
        """
        self.make()
        try:
            lock = FileLock(self.path / "agent.lock")
        except OSError as error:
            raise self._unusable(error) from None
        with lock:
            if not lock.taken():
                raise DataDirInUseError(
                    f"another agent works in {self.path}; stop it, or give this one its own "
                    "--data-dir"
                )
            yield

    def make_job_folder(self, job_id: str) -> None:
        """Make the folder of a job's attempts: it is the agent's, which alone moves them."""
        folder = self.attempts / job_id
        folder.mkdir(parents=True, exist_ok=True)
        if self.is_shared:
            folder.chmod(0o711)

    def uids(self, *, but: str) -> set[int]:
        """Return the user ids that have attempts here, except those of a job."""
        found = set()
        for path in self.attempts.glob("*/*"):
            owner = accounts.owner_of(path)
            if owner is not None and path.parent.name != but:
                found.add(owner.uid)
        return found

    def _has_foreign_attempts(self) -> bool:
        """Return whether attempts of an earlier agent run as other users."""
        return any(accounts.owner_of(path) is not None for path in self.attempts.glob("*/*"))

    def read_credential(self, coordinator: str) -> JoinReply | None:
        """Return the credential for this coordinator, if the node joined it."""
        try:
            data = json.loads((self.path / "agent.json").read_bytes())
            if data["coordinator"] != coordinator:
                return None
            return JoinReply.model_validate(data)
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def read_pin(self, coordinator: str) -> Anchor | None:
        """Return what the node verified this coordinator with when it joined, if that was pinned.

        Raises:
            AgentError: it cannot be understood.
        """
        try:
            data = json.loads((self.path / "agent.json").read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        if not isinstance(data, dict) or data.get("coordinator") != coordinator:
            return None
        pin = data.get("tls")
        try:
            return Anchor(str(pin["pem"]), bool(pin["is_own"])) if pin is not None else None
        except (KeyError, TypeError):
            # Nothing else may be trusted in its place.
            raise AgentError(
                f"the pinned certificate in {self.path / 'agent.json'} cannot be read; run "
                "`trainhall nodes add` and start the agent with the new join token"
            ) from None

    def write_credential(
        self, coordinator: str, reply: JoinReply, pin: Anchor | None = None
    ) -> None:
        """Keep the credential, and what its coordinator was verified with if that was pinned."""
        tls = {"tls": asdict(pin)} if pin is not None else {}
        self._replace("agent.json", {"coordinator": coordinator, **reply.model_dump(), **tls})

    def forget_credential(self) -> None:
        (self.path / "agent.json").unlink(missing_ok=True)

    def read_launched(self) -> dict[str, FencingToken]:
        """Return the newest token ever launched here, by job."""
        try:
            data = json.loads((self.path / "launched.json").read_bytes())
            return {job: FencingToken(job, int(a), int(g)) for job, (a, g) in data.items()}
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError, AttributeError) as error:
            raise AgentError(
                f"{self.path / 'launched.json'} cannot be read ({error}); without it an attempt "
                "might run twice. Remove it when no attempt runs on this host"
            ) from None

    def write_launched(self, launched: dict[str, FencingToken]) -> None:
        newest = list(launched.values())[-REMEMBERED_JOBS:]
        self._replace("launched.json", {t.job_id: (t.attempt, t.generation) for t in newest})

    def launches(self) -> Iterator[tuple[AttemptFolder, Launch | None]]:
        """Yield the folder and launch of each attempt; None: its launch cannot be read.

        A folder is named for the generation in which the attempt began here; its launch may be of a
        later one.
        """
        for path in sorted(self.attempts.glob("*/a*-g*/launch.json")):
            folder = AttemptFolder(path.parent)
            try:
                launch = load_launch(path)
            except (OSError, ValueError) as error:
                logger.warning("attempt_unreadable", path=path, error=error)
                yield folder, None
                continue
            if folder.token is not None and folder.token[:2] == launch.token[:2]:
                yield folder, launch

    def _replace(self, name: str, data: object) -> None:
        temporary = self.path / f"{name}.tmp"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w") as file:
            json.dump(data, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path / name)
