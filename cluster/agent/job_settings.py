"""Settings that all jobs of an agent share: environment, users, control groups."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainhall.cluster.agent.containers.engine import HostEngine
from trainhall.cluster.agent.options import AgentError
from trainhall.cluster.agent.os_support.cgroups import Cgroups
from trainhall.cluster.agent.run_as import RunAs
from trainhall.training.link.folder import AttemptFolder


@dataclass(frozen=True)
class JobSettings:
    environment: Mapping[str, str]
    """The one that the processes of jobs begin with."""
    run_as: RunAs | None = None
    """The users that they run as; None: the agent's."""
    cgroups: Cgroups | None = None
    """Control groups of attempts; None: none are delegated to the agent."""
    memory: int | None = None
    """Memory that an attempt may use on this host, in bytes; None: what the agent leaves of it."""
    file_repositories: bool = False
    """True: code may be cloned from folders of this host."""
    engine: HostEngine = field(default_factory=HostEngine)
    """For jobs in containers."""


def check_limits(cgroups: Cgroups | None) -> None:
    """Check that attempts can be limited, as was asked for.

    Raises:
        AgentError: no control group is delegated to this agent, or not so that it sets limits.
    """
    if cgroups is None or not cgroups.has_limits:
        raise AgentError(
            "--job-memory needs control groups (v2) with limits: start the agent as a systemd unit "
            "with Delegate=yes and DelegateSubgroup=agent (docs/security.md), or without the option"
        )


def cgroup_name(folder: AttemptFolder) -> str:
    """Return the name of an attempt's control group."""
    return f"job-{folder.path.parent.name}-{folder.path.name}"
