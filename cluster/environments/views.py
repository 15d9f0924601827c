"""The environment of a job, as the REST API returns it."""

from typing import Any, Literal

from trainhall.db.provenance import LockedEnvironment
from trainhall.db.views import Time, View

EnvironmentKind = Literal["agent", "installed", "image"]


class JobEnvironment(View):
    """Python environment of a job. What its lock says is null until the first host has made it, and
    for a job that runs in the environment of its hosts' agents."""

    kind: EnvironmentKind
    """`agent`: the ranks use the Python of their host's agent. `installed`: hosts install one.
    `image`: they run in a container."""
    image: str | None
    """Image with its digest."""
    python: str | None
    """Version of Python."""
    torch: Literal["host", "lock"] | None
    """The hosts' own torch, or one among the packages."""
    platform: str | None
    """Kind of host that the lock is for, such as linux-x86_64."""
    packages: int | None
    """Number of locked packages."""
    sha256: str | None
    """Hash of the lock: jobs with the same share what hosts install."""
    node: str | None
    """Name of the node that made the lock."""
    attempt: int | None
    """Attempt in which it was made."""
    locked_at: Time | None


def kind_of(given: dict[str, Any]) -> EnvironmentKind:
    """Return the kind of an environment, from the part of a spec that asks for it."""
    if given.get("image") is not None:
        return "image"
    is_built = any(given.get(name) is not None for name in ("python", "requirements", "project"))
    return "installed" if is_built else "agent"


def environment_view(spec: dict[str, Any], row: LockedEnvironment | None) -> JobEnvironment:
    """Return the view of a job's environment.

    Args:
        spec: the job's, as stored.
        row: its lock, if there is one.
    """
    given = spec.get("environment") or {}
    kind = kind_of(given)
    if row is not None:
        return JobEnvironment.of(row, kind=kind)
    return JobEnvironment(
        kind=kind, image=None, python=given.get("python"), torch=given.get("torch"), platform=None,
        packages=None, sha256=None, node=None, attempt=None, locked_at=None,
    )  # fmt: skip
