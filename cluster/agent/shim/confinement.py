"""Limits that a shim takes on before code of a job runs: a user without privileges, and a group.

The agent alone decides it. A shim that is forked or executed by an agent that runs as root becomes
the job's user first of all; what it opens, writes and starts is that user's.
"""

import contextlib
import os
from pathlib import Path

from trainhall.cluster.agent.os_support import cgroups, linux
from trainhall.training.link.base import LinkModel

_OF_THE_AGENT = ("SHELL", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
"""Variables that speak of the agent's user."""


class JobUser(LinkModel):
    """A user without the rights of the agent."""

    uid: int
    gid: int
    groups: list[int]
    """Supplementary ones."""
    name: str
    home: str
    umask: int

    def become(self) -> None:
        """Become the user, for good.

        Raises:
            OSError: this process may not.
        """
        os.umask(self.umask)
        os.setgroups(self.groups)
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)
        # No program that is executed from here on gets other rights, such as by a setuid bit.
        linux.forbid_new_privileges()
        # Else `/proc/self` would be root's after the change: a shim finds its ranks there.
        linux.be_readable()
        for name in _OF_THE_AGENT:
            os.environ.pop(name, None)
        os.environ.update(HOME=self.home, USER=self.name, LOGNAME=self.name)


class Confinement(LinkModel):
    """The limits of an attempt."""

    user: JobUser | None = None
    """None: the agent's."""
    cgroup: str | None = None
    """Path of the attempt's control group; None: it has none."""

    def enter(self) -> None:
        """Take the limits on, for good.

        Raises:
            OSError: this process may not become the user.
        """
        if self.cgroup is not None:
            # Without its group the attempt is ended by other means.
            with contextlib.suppress(OSError):
                cgroups.enter(Path(self.cgroup))
        if self.user is not None:
            self.user.become()
