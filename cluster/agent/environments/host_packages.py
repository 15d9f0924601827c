"""Packages of the agent's Python that an environment uses in place: torch, and the SDK's needs.

An environment has a folder of links to them (`LINKS`), which a `.pth` file puts behind its own
packages on the search path: its own come first, and nothing else of the agent is seen. So torch
takes no space and no time, and `import trainhall` works although no package index has this very
version of it. Compiled packages fit one minor version of Python: another one gets `trainhall`
itself, which is plain Python, and what that needs is locked with the job's packages.
"""

import functools
import hashlib
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import trainhall

TORCH = ("torch", "torchvision", "torchaudio", "triton")
"""Packages that have to fit each other, and the driver."""
SDK = (
    "pydantic", "numpy", "safetensors", "psutil", "PyYAML", "httpx", "httpcore", "typer", "rich",
    "pathspec", "nvidia-ml-py",
)  # fmt: skip
"""Packages that ranks, the SDK and `trainhall.Client` import."""
_OF_TASKS = ("scikit-learn", "matplotlib")
LINKS = "host-packages"
"""Name of the folder of links in an environment."""


class HostPackages(NamedTuple):
    links: dict[str, Path]
    """By name of a module or a folder of metadata."""
    names: tuple[str, ...]
    """The packages, as `torch==2.12.0`."""

    @property
    def fingerprint(self) -> str:
        """Changes with the versions and places of the packages."""
        text = repr((sorted(self.names), sorted(map(str, self.links.values()))))
        return hashlib.sha256(text.encode()).hexdigest()

    def link_into(self, environment: Path, final: Path) -> None:
        """Make them importable in an environment.

        Args:
            final: where it will be.
        """
        folder = environment / LINKS
        folder.mkdir()
        for name, target in self.links.items():
            (folder / name).symlink_to(target)
        for packages in environment.glob("lib/python*/site-packages"):
            (packages / "trainhall-host.pth").write_text(f"{final / LINKS}\n")


def minor_version() -> str:
    """Return the version of this Python, such as 3.12."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def installed_torch() -> list[str]:
    """Return which packages of `TORCH` this Python has."""
    return [name for name in TORCH if _distribution(name) is not None]


def sdk_requirements() -> list[str]:
    """Return the requirements of the SDK, for a Python that cannot use the agent's packages."""
    wanted = {canonicalize_name(name) for name in SDK}
    own = _distribution("trainhall")
    requires = [Requirement(text) for text in (own.requires or [] if own is not None else [])]
    found = {r.name: str(r) for r in requires if canonicalize_name(r.name) in wanted}
    return sorted({**{name: name for name in SDK}, **found}.values())


@functools.cache
def find(python: str, *, torch: bool) -> HostPackages:
    """Return what an environment uses of this Python.

    Args:
        python: its minor version.
        torch: with torch, and what that needs.
    """
    links = {"trainhall": Path(trainhall.__path__[0])}
    if python != minor_version():
        return HostPackages(links, ())
    names: list[str] = []
    left_out: set[str] = set() if torch else {canonicalize_name(name) for name in TORCH}
    for distribution in _closure([*SDK, *_OF_TASKS, *TORCH], left_out):
        names.append(f"{distribution.name}=={distribution.version}")
        for top in _top_level(distribution):
            links.setdefault(top.name, top)
    own = _distribution("trainhall")
    for top in _top_level(own) if own is not None else ():
        if top.suffix == ".dist-info":  # for its version
            links.setdefault(top.name, top)
    return HostPackages(links, tuple(sorted(names)))


def _closure(roots: Sequence[str], left_out: set[str]) -> Iterator[metadata.Distribution]:
    """Yield the installed ones of these packages, and of what they need."""
    waiting, seen = [canonicalize_name(name) for name in roots], set(left_out)
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        distribution = _distribution(name)
        if distribution is None:
            continue
        yield distribution
        waiting += [
            canonicalize_name(needed.name)
            for needed in map(Requirement, distribution.requires or [])
            if needed.marker is None or needed.marker.evaluate({"extra": ""})
        ]


def _distribution(name: str) -> metadata.Distribution | None:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None


def _top_level(distribution: metadata.Distribution) -> Iterator[Path]:
    """Yield its modules, folders of modules and metadata, where they are installed."""
    for name in {file.parts[0] for file in distribution.files or []}:
        if name not in ("..", "__pycache__") and not name.endswith(".pth"):
            yield Path(str(distribution.locate_file(name)))
