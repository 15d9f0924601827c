"""The user that a shim and its ranks become, without privileges, before code of a job runs.

The agent alone decides it. A shim that is forked or executed by an agent that runs as root becomes
that user first of all; what it opens, writes and starts is that user's.
"""

import os

from trainhall.cluster.agent.os_support import linux
from trainhall.training.link.base import LinkModel

_OF_THE_AGENT = ("SHELL", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
"""Variables that speak of the agent's user."""


class Confinement(LinkModel):
    """A user without the rights of the agent."""

    uid: int
    gid: int
    groups: list[int]
    """Supplementary ones."""
    name: str
    home: str
    umask: int

    def enter(self) -> None:
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
