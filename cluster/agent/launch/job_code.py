"""The code of an attempt: uploaded to the coordinator, or cloned from a git repository.

Both are kept in the agent's cache of code; a clone under a name of the job's own, since another job
may not be allowed to read the repository.
"""

import hashlib
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

from trainhall.cluster.agent import threads
from trainhall.cluster.agent.coordinator_link.http_api import RefusedError
from trainhall.cluster.agent.coordinator_link.retry import until_answered
from trainhall.cluster.agent.git.clone import Cloning
from trainhall.cluster.agent.git.errors import CloneError
from trainhall.cluster.agent.launch.code_cache import CodeCache
from trainhall.cluster.agent.os_support import accounts
from trainhall.cluster.agent.os_support.accounts import Owner
from trainhall.training.link.failure import Cause
from trainhall.training.link.launch import Launch
from trainhall.training.spec.source.git_code import GitCode


class Commits(Protocol):
    """The coordinator's part; tests have their own."""

    async def get_commit(self, job_id: str, attempt: int) -> str | None: ...

    async def put_commit(self, job_id: str, attempt: int, commit: str) -> str: ...


class JobCode:
    def __init__(self, cache: CodeCache, commits: Commits, cloning: Cloning) -> None:
        self._cache = cache
        self._commits = commits
        self._cloning = cloning

    async def copy(
        self,
        launch: Launch,
        to: Path,
        scratch: Path,
        report: Callable[[str], None],
        *,
        token: str | None = None,
        owner: Owner | None = None,
    ) -> str:
        """Put a copy of an attempt's code at `to`, which does not exist; return its name in the
        cache.

        Args:
            scratch: where a clone may lie meanwhile; it does not exist.
            report: takes a few words on the work that begins.
            token: an access token for the repository's server.
            owner: as whom git runs; None: as this process.

        Raises:
            CloneError: the repository cannot be cloned.
            CodeUnavailableError: the coordinator does not have the upload.
            OSError: there is no room for it.
        """
        code = launch.spec.git_code
        if code is None:
            assert launch.spec.uploaded_code is not None
            await self._cache.copy(launch.spec.uploaded_code, to)
            return launch.spec.uploaded_code
        try:
            pinned = await until_answered(
                partial(self._commits.get_commit, launch.job_id, launch.attempt), launch.job_id
            )
            clone = _Clone(self._cloning, code, scratch, report, token, owner)
            if pinned is None:
                found = await clone.make(None)
                pinned = await until_answered(
                    partial(self._commits.put_commit, launch.job_id, launch.attempt, found),
                    launch.job_id,
                )
            name = _name(launch.job_id, code, pinned)
            await self._cache.copy(name, to, partial(clone.move, pinned))
            return name
        except RefusedError as error:
            raise CloneError(
                f"the coordinator refused its commit: {error.detail}", cause=Cause.NOT_STARTED
            ) from None
        except CloneError as error:
            # Without a commit nothing of it ever worked: a user has to look.
            error.is_passing = error.is_passing and pinned is not None
            raise
        finally:
            await threads.finish(partial(shutil.rmtree, scratch, ignore_errors=True))


class _Clone:
    """A clone on its way into the cache."""

    def __init__(
        self,
        cloning: Cloning,
        code: GitCode,
        scratch: Path,
        report: Callable[[str], None],
        token: str | None,
        owner: Owner | None,
    ) -> None:
        self._cloning = cloning
        self._code = code
        self._scratch = scratch
        self._folder = scratch / "code"
        self._report = report
        self._token = token
        self._owner = owner
        self._commit: str | None = None
        """Commit that lies there."""

    async def make(self, commit: str | None) -> str:
        """Clone a commit, or that of the ref, and return it."""
        self._report(f"cloning {self._code.git}")
        await threads.finish(self._clear)
        self._commit = await self._cloning.clone(
            self._code, self._folder, commit=commit, token=self._token, owner=self._owner
        )
        return self._commit

    async def move(self, commit: str, to: Path) -> None:
        """Move a clone of the commit to where nobody but this agent gets."""
        if self._commit != commit:
            await self.make(commit)
        await threads.finish(partial(self._folder.rename, to))
        self._commit = None

    def _clear(self) -> None:
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir(mode=0o700)
        if self._owner is not None:
            accounts.hand_over(self._scratch, self._owner)


def _name(job_id: str, code: GitCode, commit: str) -> str:
    parts = (job_id, code.git, commit, str(code.submodules))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
