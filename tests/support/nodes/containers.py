"""A container engine for tests without one, and a small image for those with Podman."""

import importlib.util
import json
import os
import stat
import subprocess
import sys
import sysconfig
import tarfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

_OF_THE_SDK = ("pydantic_core._pydantic_core", "numpy._core._multiarray_umath")
"""Modules that are mounted, and need libraries of the image."""
DIGEST = "sha256:" + "0" * 64
FAKE = """#!{python}
import json, os, subprocess, sys
arguments = sys.argv[1:]
with open({log!r}, "a") as log:
    log.write(json.dumps(arguments) + "\\n")
match arguments:
    case ["version", *_]:
        print("9.9")
    case ["image", "inspect", name] if "nosuch" in name:
        sys.exit(f"Error: {{name}}: image not known")
    case ["image", "inspect", name]:
        print(json.dumps([{{"Id": "ab", "RepoDigests": [name.split("@")[0].split(":")[0] + "@{digest}"]}}]))
    case ["pull", *_]:
        sys.exit("Trying to pull it\\nError: reading manifest: manifest unknown")
    case ["run", *_]:
        at = arguments.index("--entrypoint")
        command = [arguments[at + 1].replace("python3", sys.executable), *arguments[at + 3:]]
        if "--detach" not in arguments:
            sys.exit(subprocess.call(command))
        marks = [arguments[i + 1] for i, each in enumerate(arguments) if each == "--env"]
        env = {{"PATH": os.defpath, "OF_THE_IMAGE": "1"}} | dict(each.split("=", 1) for each in marks)
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        subprocess.Popen(command, env=env, start_new_session=True, **streams)
"""  # noqa: E501


class FakeEngine:
    """Passes for Podman: containers are processes of the host; images with `nosuch` in their name
    are unknown."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "calls.jsonl"
        program = folder / "bin" / "podman"
        program.parent.mkdir(parents=True)
        text = FAKE.format(python=sys.executable, log=str(self._log), digest=DIGEST)
        program.write_text(text)
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        self.path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"

    def calls(self, command: str) -> list[list[str]]:
        """Return the arguments of its calls of a command."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [call for call in map(json.loads, lines) if call[0] == command]


@pytest.fixture
def fake_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    engine = FakeEngine(tmp_path / "engine")
    monkeypatch.setenv("PATH", engine.path)
    return engine


CONFIGURATION = """
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
runtime = "runc"
"""
"""For a host whose root may not raise its limits, and whose control groups are mixed."""


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An image of Podman's with this Python, made from files of this host."""
    name = f"localhost/trainhall-test-{uuid.uuid4().hex[:12]}"
    archive = tmp_path / "image.tar"
    with tarfile.open(archive, "w", dereference=True) as tar:
        for path in _files():
            tar.add(path, recursive=False)
    environment = f"ENV PATH={sys.base_prefix}/bin:/bin"
    subprocess.run(["podman", "import", "-q", "--change", environment, archive, name], check=True)
    archive.unlink()
    try:
        probe = ["podman", "run", "--rm", name, "python3", "-c", ""]
        if subprocess.run(probe, capture_output=True, check=False).returncode:
            (tmp_path / "containers.conf").write_text(CONFIGURATION)
            monkeypatch.setenv("CONTAINERS_CONF", str(tmp_path / "containers.conf"))
            subprocess.run(probe, check=True)
        yield name
    finally:
        subprocess.run(["podman", "rmi", "--force", name], check=True, stdout=subprocess.DEVNULL)


def _files() -> list[Path]:
    """Return the files of this Python, with the libraries that they load, and of a shell."""
    python = Path(os.path.realpath(sys.executable))
    library = Path(sysconfig.get_path("stdlib"))
    skipped = {"site-packages", "test", "__pycache__", "idlelib", "ensurepip"}
    found = {python, python.with_name("python3"), Path("/bin/sh")}
    for base, folders, files in os.walk(library):
        folders[:] = [name for name in folders if name not in skipped]
        found |= {Path(base, name) for name in files}
    native = [path for path in found if path.suffix == ".so"] + [python, Path("/bin/sh")]
    for module in _OF_THE_SDK:
        spec = importlib.util.find_spec(module)
        assert spec is not None
        native.append(Path(str(spec.origin)))
    listed = subprocess.run(["ldd", *native], capture_output=True, text=True, check=True).stdout
    found |= {Path(word) for word in listed.split() if word.startswith("/") and word[-1] != ":"}
    return sorted(found)
