"""What a wheel installs works by itself: no links, no torch, nothing of the source tree."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import httpx
import pytest
from packaging.requirements import Requirement
from support.cluster.web import bearer
from support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv*", ".run", "node_modules", "__pycache__", "build", "dist", "*.egg-info",
    ".*cache",
)  # fmt: skip
SERVER_SIDE = ("api", "cli", "cluster", "db", "monitoring", "training.link", "training.spec")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a wheel and an sdist, built from a copy: builds leave traces in their tree."""
    source = tmp_path_factory.mktemp("source") / "trainhall"
    shutil.copytree(ROOT, source, symlinks=True, ignore=LEFT_OUT)
    dist = tmp_path_factory.mktemp("dist")
    build(source, dist, "--wheel", "--sdist")
    return dist


def build(source: Path, dist: Path, *kinds: str) -> None:
    command = [sys.executable, "-m", "build", "--no-isolation", *kinds, "--outdir", str(dist)]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def wheel_in(folder: Path) -> Path:
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def python(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh environment with the wheel and what it asks for, and nothing else."""
    env = tmp_path_factory.mktemp("env")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(env)], check=True)
    python = env / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "install", "--quiet", "--no-compile", "--no-deps", str(wheel_in(built))],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (site,) = env.glob("lib/python*/site-packages")
    (wheel,) = metadata.distributions(name="trainhall", path=[str(site)])
    link_needed(wheel, site)
    return python


def link_needed(wheel: metadata.Distribution, site: Path) -> None:
    """Link what the wheel asks for, and what that asks for in turn, out of this environment.

    Installing it would take longer than all that is tried with it.
    """
    todo = [(wheel, "")]
    done: set[tuple[str, str]] = set()
    while todo:
        asking, extra = todo.pop()
        for line in asking.requires or []:
            needed = Requirement(line)
            if needed.marker is not None and not needed.marker.evaluate({"extra": extra}):
                continue
            found = metadata.distribution(needed.name)
            assert needed.specifier.contains(found.version), f"{asking.name} asks for {needed}"
            new = {(found.name, each) for each in ("", *needed.extras)} - done
            todo += [(found, each) for _, each in new]
            done |= new
            for name in {file.parts[0] for file in found.files or []} - {"..", "__pycache__"}:
                if not (site / name).exists():
                    (site / name).symlink_to(str(found.locate_file(name)))


def modules() -> list[str]:
    """Every module of the source tree that a coordinator or the command line may import."""
    found = []
    for package in SERVER_SIDE:
        base = ROOT / package.replace(".", "/")
        paths = sorted(base.rglob("*.py")) if base.is_dir() else [base.with_suffix(".py")]
        for path in paths:
            parts = path.relative_to(ROOT).with_suffix("").parts
            if "versions" in parts or path.name == "env.py" or "node_modules" in parts:
                continue  # Alembic runs these; they are not imported
            found.append(".".join(["trainhall", *parts]).removesuffix(".__init__"))
    return found


@pytest.mark.processes
def test_torch_is_not_pulled_in(python: Path) -> None:
    code = "import importlib.util as u; raise SystemExit(u.find_spec('torch') is not None)"
    assert subprocess.run([python, "-c", code], check=False).returncode == 0


@pytest.mark.processes
def test_every_module_of_the_server_side_imports(python: Path, tmp_path: Path) -> None:
    lines = ["import importlib, trainhall, pathlib"]
    lines += [f"importlib.import_module({name!r})" for name in modules()]
    lines += ["print(pathlib.Path(trainhall.__file__).parent)"]
    done = subprocess.run(
        [python, "-W", "error", "-c", "\n".join(lines)],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert str(ROOT) not in done.stdout


def test_the_wheel_holds_every_module_and_no_link(built: Path) -> None:
    with zipfile.ZipFile(wheel_in(built)) as archive:
        names = set(archive.namelist())
    for package in ("parallelism", "distributed", "training", *SERVER_SIDE):
        base = ROOT / package.replace(".", "/")
        for path in sorted(base.rglob("*.py")) if base.is_dir() else []:
            assert f"trainhall/{path.relative_to(ROOT)}" in names
    assert "trainhall/py.typed" in names
    assert any(name.startswith("trainhall/db/migrations/versions/") for name in names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith(("tests/", "scripts/", "benchmarks/"))]


@pytest.mark.processes
def test_the_sdist_builds_the_same_wheel(built: Path, tmp_path: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        assert not [m.name for m in archive.getmembers() if m.issym() or m.islnk()]
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    build(source, tmp_path / "again", "--wheel")
    with (
        zipfile.ZipFile(wheel_in(built)) as ours,
        zipfile.ZipFile(wheel_in(tmp_path / "again")) as theirs,
    ):
        assert sorted(ours.namelist()) == sorted(theirs.namelist())


@pytest.fixture(scope="module")
def server(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a coordinator that runs from the wheel."""
    folder = tmp_path_factory.mktemp("server")
    log = folder / "server.log"
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TRAINHALL_", "DATABASE_"))}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [python.with_name("trainhall"), "server", "--port", "0", "--data-dir", folder / "d"],
            stdout=output, stderr=subprocess.STDOUT, cwd=folder, env=env,
        )  # fmt: skip

    def url() -> str | None:
        assert process.poll() is None, log.read_text()
        found = re.search(r"http://127\.0\.0\.1:\d+", log.read_text())
        return found.group(0) if found else None

    try:
        address = str(eventually("the coordinator's URL", url))
        with httpx.Client(base_url=address, headers=bearer(folder / "d")) as client:
            yield client
    finally:
        process.terminate()
        assert process.wait(PATIENCE) == 0, log.read_text()


def test_a_coordinator_runs_from_the_wheel(server: httpx.Client) -> None:
    def healthy() -> bool:
        return server.get("/readyz").status_code == 200

    eventually("the coordinator to be ready", healthy)
    assert server.get("/healthz").status_code == 200
    assert server.get("/api/v1/training/jobs").json()["items"] == []


def test_the_dashboard_is_served_from_the_wheel(server: httpx.Client) -> None:
    if not (ROOT / "api" / "static" / "index.html").exists():
        pytest.skip("the dashboard is not built here: `make build` or `make test` does it")
    page = server.get("/")
    assert page.status_code == 200
    assert "text/html" in page.headers["content-type"]
    for path in re.findall(r'(?:src|href)="(/[^"]+\.(?:js|css))"', page.text):
        assert server.get(path).status_code == 200
    for path in ("/speedscope/index.html", "/speedscope/LICENSE.txt"):
        assert server.get(path).status_code == 200
