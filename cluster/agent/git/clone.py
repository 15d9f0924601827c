"""Cloning: git without prompts, hooks or helpers of its own, in bounded time and space.

git runs as the job's user in a folder of its own, which it leaves as a repository of one commit
with a working tree. An access token is in a file there that only this user reads, and that is
removed before anything else may read it: neither arguments, environment nor configuration hold it.
"""

import asyncio
import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import quote, urlsplit

from trainhall.cluster.agent import threads
from trainhall.cluster.agent.folder_store import size_of
from trainhall.cluster.agent.git.errors import CloneError, RefMissingError, error_of
from trainhall.cluster.agent.os_support import accounts, programs
from trainhall.cluster.agent.os_support.accounts import Owner
from trainhall.training.link.failure import Cause
from trainhall.training.spec.source.git_code import COMMIT, GitCode

CLONE_SECONDS = 600.0
"""Most time of one clone."""
CLONE_BYTES = 2 * 1024**3
"""Most bytes of one clone: the working tree and git's own files."""
_CHECK_SECONDS = 1.0
_NULL = os.devnull
_COMMIT = re.compile(COMMIT)
_HEX = re.compile(r"[0-9a-f]{7,64}")
_OPTIONS = (
    # What a repository, or a user's own configuration, might have git run or wait for.
    f"core.hooksPath={_NULL}", "core.fsmonitor=false", "core.askPass=", "gc.auto=0",
    "maintenance.auto=false", "init.defaultBranch=main", "advice.detachedHead=false",
    "protocol.ext.allow=never", "submodule.recurse=false", "fetch.recurseSubmodules=false",
    "protocol.version=2", "credential.useHttpPath=false",
    # A server that stalls is an error, with a message of git's own.
    "http.lowSpeedLimit=100", "http.lowSpeedTime=60",
)  # fmt: skip
_SSH = "ssh -o BatchMode=yes -o ConnectTimeout=30 -o ServerAliveInterval=20"
_USER_NAME = "oauth2"
"""Name beside an access token: the large servers take any."""


class Cloning:
    """
    Args:
        variables: those that jobs get: proxies, certificates and HOME are used.
        running: holds the pids of what runs.
        allows_files: clone `file:` addresses, too.
    """

    def __init__(
        self,
        variables: Mapping[str, str],
        running: set[int],
        *,
        allows_files: bool = False,
        seconds: float = CLONE_SECONDS,
        max_bytes: int = CLONE_BYTES,
    ) -> None:
        own = {k: v for k, v in os.environ.items() if k.startswith("GIT_SSL_")}
        passed = {k: v for k, v in variables.items() if not k.startswith("GIT_")}
        self._variables = {
            **passed,
            **own,
            "LC_ALL": "C",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "",  # set and empty: no other program is asked, either
            "GIT_SSH_COMMAND": _SSH,
            "GIT_ALLOW_PROTOCOL": "https:http:ssh" + (":file" if allows_files else ""),
            "GCM_INTERACTIVE": "never",
        }
        self._running = running
        self._allows_files = allows_files
        self._seconds = seconds
        self._max_bytes = max_bytes

    async def clone(
        self,
        code: GitCode,
        folder: Path,
        *,
        commit: str | None = None,
        token: str | None = None,
        owner: Owner | None = None,
    ) -> str:
        """Clone a repository at one commit; return the commit.

        Args:
            folder: where the working tree will be; it does not exist. Its parent is for this clone
                alone, and `owner`'s.
            commit: the one to take; None: that of `code.ref`.
            token: an access token for the server.
            owner: as whom git runs; None: as this process.

        Raises:
            CloneError: it cannot be cloned.
        """
        if code.scheme == "file" and not self._allows_files:
            raise CloneError(
                f"{code.git} is a folder of the host, and its agent does not allow that: start it "
                "with --allow-file-repositories, or give an https or ssh address"
            )
        work = _Clone(self, code, folder, owner)
        try:
            async with asyncio.timeout(self._seconds):
                if token is not None:
                    await threads.finish(partial(work.write_token, token))
                return await self._bounded(work, commit)
        except TimeoutError:
            raise CloneError(
                f"{code.git} was not cloned within {self._seconds / 60:g} minutes",
                cause=Cause.NOT_STARTED, is_passing=True,
            ) from None  # fmt: skip
        finally:
            await threads.finish(work.remove_token)

    async def _bounded(self, work: "_Clone", commit: str | None) -> str:
        """Clone, while the folder stays within its limit."""
        cloning = asyncio.ensure_future(work.run(commit))
        try:
            is_done = False
            while not is_done:
                is_done = bool((await asyncio.wait([cloning], timeout=_CHECK_SECONDS))[0])
                size = await asyncio.to_thread(size_of, work.folder)
                if size > self._max_bytes:
                    raise CloneError(
                        f"{work.code.git} has more than {self._max_bytes / 1024**3:g} GiB at one "
                        "commit, the most that hosts clone; keep data apart from code"
                    )
            return cloning.result()
        finally:
            cloning.cancel()
            await asyncio.wait([cloning])

    async def run(
        self, arguments: Sequence[str], cwd: Path, owner: Owner | None, *, has_token: bool
    ) -> str:
        """Run git to its end; return what it printed.

        Raises:
            CloneError: it is not installed, or ended otherwise than with 0.
        """
        variables = self._variables
        if owner is not None:
            # Neither this process's user nor its configuration.
            variables = {**variables, "HOME": str(cwd), "GIT_CONFIG_GLOBAL": _NULL}
        options = [part for option in _OPTIONS for part in ("-c", option)]
        program = shutil.which("git", path=variables.get("PATH"))
        if program is None:
            raise CloneError("git is not installed on this host", cause=Cause.NOT_STARTED)
        try:
            ended = await programs.run(
                [program, *options, *arguments],
                environment=variables, cwd=cwd, running=self._running, owner=owner,
            )  # fmt: skip
        except OSError as error:
            why = f"git cannot be started: {error.strerror or error}"
            raise CloneError(why, cause=Cause.NOT_STARTED) from None
        if ended.code != 0:
            words = ended.stderr.decode(errors="replace")
            raise error_of(words, ended.code, has_token=has_token)
        return ended.stdout.decode(errors="replace").strip()


class _Clone:
    """One clone: its steps."""

    def __init__(self, cloning: Cloning, code: GitCode, folder: Path, owner: Owner | None) -> None:
        self.code = code
        self.folder = folder
        self._cloning = cloning
        self._owner = owner
        self._token_file = folder.with_name("credentials")
        self._has_token = False

    def write_token(self, token: str) -> None:
        server = urlsplit(self.code.git)
        text = f"{server.scheme}://{_USER_NAME}:{quote(token, safe='')}@{server.netloc}\n"
        with accounts.acting_as(self._owner):
            fd = os.open(self._token_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(text)
        self._has_token = True

    def remove_token(self) -> None:
        with accounts.acting_as(self._owner):
            self._token_file.unlink(missing_ok=True)

    async def run(self, commit: str | None) -> str:
        """Fetch and check out a commit, or that of the ref; return it."""
        await self._git("init", "--quiet", "--template=", str(self.folder))
        wanted = commit or self.code.ref
        try:
            await self._fetch("--no-tags", "--depth=1", wanted)
            found = await self._commit_of("FETCH_HEAD")
        except RefMissingError as error:
            found = await self._find_in_all(wanted, error)
        if commit is not None and found != commit:
            raise CloneError(f"{self.code.git} has no commit {commit} any more")
        await self._inside("remote", "add", "origin", self.code.git)
        await self._inside("checkout", "--quiet", "--detach", found)
        if self.code.submodules:
            await self._inside(
                "submodule", "--quiet", "update", "--init", "--recursive", "--depth=1"
            )
        return found

    async def _find_in_all(self, wanted: str, error: RefMissingError) -> str:
        """Return the commit of a hash that the server gives out as a part of branches alone."""
        missing = CloneError(
            f"{self.code.git} has no branch, tag or commit {wanted}: {error}",
            log_tail=error.log_tail,
        )
        if not _HEX.fullmatch(wanted):
            raise missing
        await self._fetch("+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*")
        try:
            return await self._commit_of(wanted)
        except CloneError:
            raise missing from None

    async def _fetch(self, *arguments: str) -> None:
        options = [each for each in arguments if each.startswith("--")]
        refs = [each for each in arguments if not each.startswith("--")]
        await self._inside("fetch", "--quiet", *options, "--", self.code.git, *refs)

    async def _commit_of(self, name: str) -> str:
        printed = await self._inside("rev-parse", "--verify", f"{name}^{{commit}}")
        if not _COMMIT.fullmatch(printed):
            raise CloneError(f"git names no commit of {name}: {printed[:80]!r}")
        return printed

    async def _inside(self, *arguments: str) -> str:
        return await self._git("-C", str(self.folder), *arguments)

    async def _git(self, *arguments: str) -> str:
        login: tuple[str, ...] = ()
        if self._has_token:
            # The first takes back the helpers of all configurations.
            file = shlex.quote(str(self._token_file))
            login = ("-c", "credential.helper=", "-c", f"credential.helper=store --file={file}")
        return await self._cloning.run(
            [*login, *arguments], self.folder.parent, self._owner, has_token=self._has_token
        )
