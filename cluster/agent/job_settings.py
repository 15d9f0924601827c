"""Settings that all jobs of an agent share: environment, users, control groups."""

from collections.abc import Mapping
from dataclasses import dataclass

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


def cgroup_name(folder: AttemptFolder) -> str:
    """Return the name of an attempt's control group."""
    return f"job-{folder.path.parent.name}-{folder.path.name}"
