"""`--run-as`: the users that jobs run as, where the agent may switch to them.

A user by name keeps jobs from the agent and from what else is on the host. A range of user ids
keeps them from each other too: each job gets one of its own, and its files on shared storage a
group by project, so that the next attempts of the project can read them, whatever host they run
on. All hosts of a cluster need the same range.
"""

import grp
import hashlib
import os
import pwd
import re
import subprocess
import sys
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from trainhall.cluster.agent.options import AgentError, OptionError
from trainhall.cluster.agent.os_support import linux
from trainhall.cluster.agent.os_support.accounts import Owner
from trainhall.cluster.agent.shim.confinement import JobUser

MAX_ID = 2**31 - 1
FIRST_ID = 1000
"""Smaller ids belong to the system."""
PROBE_SECONDS = 60.0
AGENT_UMASK = 0o077
_RANGE = re.compile(r"(\d{1,10})-(\d{1,10})", re.ASCII)


class NoFreeUserError(Exception):
    """No user id of the range is free: other jobs of this host have taken all."""


@dataclass(frozen=True)
class RunAs:
    """The user of all jobs, or the user ids from `first` to `last`, one for each job."""

    user: pwd.struct_passwd | None
    first: int = 0
    last: int = 0
    umask: int = 0o007
    """Umask of jobs: in a range their files are for user and project alone."""

    @property
    def is_range(self) -> bool:
        return self.user is None

    def owner(self, job_id: str, project: str | None, taken: Container[int]) -> Owner:
        """Return user and group of a job.

        They follow from job and project, so another host of the same range comes to the same,
        unless another job has taken the user id there.

        Args:
            taken: user ids of other jobs on this host.

        Raises:
            NoFreeUserError: there is none left.
        """
        if self.user is not None:
            return Owner(self.user.pw_uid, self.user.pw_gid)
        count = self.last - self.first + 1
        begin = _number(f"job {job_id}")
        for step in range(count):
            uid = self.first + (begin + step) % count
            if uid not in taken:
                gid = self.first + _number(f"project {project or ''}") % count
                return Owner(uid, gid)
        raise NoFreeUserError(
            f"all {count} user ids of --run-as {self.first}-{self.last} are taken by other jobs of "
            "this host; give a larger range"
        )

    def job_user(self, owner: Owner, folder: Path) -> JobUser:
        """Return whom the shim of a job becomes.

        Args:
            folder: the attempt's, which is the home of a user without a name.
        """
        uid, gid = owner
        if self.user is not None and self.user.pw_uid == uid:
            name, home = self.user.pw_name, self.user.pw_dir
            groups = os.getgrouplist(name, gid)
        else:
            name, home, groups = str(uid), str(folder), [gid]
        return JobUser(uid=uid, gid=gid, groups=groups, name=name, home=home, umask=self.umask)

    def prepare_agent(self) -> None:
        """Make this process's own files private, and let it act as a job's user with no more rights
        than the job: its groups become that user's. Root itself needs none."""
        groups = [] if self.user is None else os.getgrouplist(self.user.pw_name, self.user.pw_gid)
        os.setgroups(groups)
        os.umask(AGENT_UMASK)

    def check(self, attempts: Path) -> None:
        """Check that jobs can start as such a user.

        Args:
            attempts: the folder of attempts, into which their users have to get.

        Raises:
            AgentError: this agent may not switch, or the user reaches too little.
        """
        if not linux.IS_LINUX:
            raise AgentError("--run-as needs Linux")
        if os.geteuid() != 0:
            raise AgentError(
                "--run-as needs an agent that runs as root, which alone may switch to other users; "
                "start it as root, or without --run-as: jobs then run as the agent's user"
            )
        who = self.user.pw_name if self.user is not None else str(self.first)
        owner = self.owner("", None, ())
        probe = "import os, sys, trainhall; os.chdir(sys.argv[1])"
        try:
            done = subprocess.run(
                [sys.executable, "-c", probe, str(attempts)],
                user=owner.uid, group=owner.gid, extra_groups=[], cwd="/",
                capture_output=True, text=True, check=False, timeout=PROBE_SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise AgentError(f"--run-as: {sys.executable} does not start as {who}") from None
        except PermissionError:
            raise AgentError(
                f"--run-as: user {who} may not run {sys.executable}; install Trainhall where every "
                "user can read it, such as in /opt/trainhall"
            ) from None
        if done.returncode:
            why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            raise AgentError(
                f"--run-as: user {who} cannot use Trainhall or enter {attempts}: {why}; every user "
                "must be able to read the installation and pass the folders above --data-dir"
            )


def parse_run_as(text: str) -> RunAs:
    """Parse the name of a user, or a range of ids such as `70000-79999`.

    Raises:
        OptionError: it is neither, or jobs must not run as these.
    """
    if found := _RANGE.fullmatch(text):
        first, last = int(found[1]), int(found[2])
        if not FIRST_ID <= first <= last <= MAX_ID:
            raise OptionError(
                f"--run-as {text}: a range of user ids lies between {FIRST_ID} and {MAX_ID}, the "
                "smaller one first, such as 70000-79999"
            )
        names = {user.pw_uid: user.pw_name for user in pwd.getpwall()}
        names |= {group.gr_gid: group.gr_name for group in grp.getgrall()}
        for number, name in sorted(names.items()):
            if first <= number <= last:
                raise OptionError(
                    f"--run-as {text}: id {number} is {name}'s; give a range that no user and no "
                    "group of this host is in"
                )
        return RunAs(None, first, last)
    try:
        user = pwd.getpwnam(text)
    except KeyError:
        raise OptionError(
            f"--run-as {text!r} is no user of this host; create it with `useradd --system`, or "
            "give a range of user ids such as 70000-79999"
        ) from None
    if user.pw_uid == 0:
        raise OptionError("--run-as root changes nothing: give a user without rights")
    os.umask(umask := os.umask(0))
    return RunAs(user, umask=umask)


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
