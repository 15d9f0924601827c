"""The links, and the rules about them that only a test can keep."""

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from support.tracked import tracked

import trainhall

ROOT = Path(__file__).parents[2]
LINKS = ROOT / "src" / "trainhall"
PACKAGES = sorted(p.name for p in LINKS.iterdir() if p.is_symlink())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_package_is_linked_relatively() -> None:
    assert len(PACKAGES) == 8
    for name in PACKAGES:
        assert (LINKS / name).readlink() == Path("../..") / name
        assert (LINKS / name / "__init__.py").is_file()


def test_the_type_checkers_see_each_package_once() -> None:
    include = PROJECT["tool"]["pyright"]["include"]
    assert sorted(include) == [f"src/trainhall/{name}" for name in PACKAGES]
    # Benchmarks import `support` from the second.
    assert PROJECT["tool"]["mypy"]["mypy_path"] == "src:tests"


@pytest.mark.processes
def test_a_type_has_one_identity(tmp_path: Path) -> None:
    """Were `db` and `trainhall.db` both found, the same class would be two for mypy."""
    script = tmp_path / "identity.py"
    script.write_text("from trainhall.training.spec.job import JobSpec\nreveal_type(JobSpec)\n")
    # One is found by its path and by its import; what else these import is nothing to it.
    files = [str(LINKS / "training" / "spec" / "job.py"), str(script)]
    options = ["--config-file", str(ROOT / "pyproject.toml"), "--follow-imports", "skip"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "--cache-dir", str(tmp_path / "cache"), *files],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "trainhall.training.spec.job.JobSpec" in done.stdout, done.stdout + done.stderr


def test_the_package_is_the_one_of_this_tree() -> None:
    assert Path(trainhall.__file__).resolve().parent == LINKS.resolve()
    assert trainhall.__version__ == PROJECT["project"]["version"]


def test_torch_is_an_extra() -> None:
    assert not [d for d in PROJECT["project"]["dependencies"] if d.startswith("torch")]
    train = PROJECT["project"]["optional-dependencies"]["train"]
    assert train[0] == "torch>=2.11,<2.14"


def test_setup_asks_for_the_same_torch() -> None:
    setup = (ROOT / "scripts" / "setup.py").read_text()
    train = PROJECT["project"]["optional-dependencies"]["train"]
    assert f'TORCH = "{train[0]}"' in setup


@pytest.mark.processes
def test_no_file_names_a_package_registry() -> None:
    """Where packages come from is the configuration of whoever installs them."""
    # Written in two halves: this file is looked through as well.
    halves = [("pypi", "org"), ("pythonhosted", "org"), ("registry.npmjs", "org"),
              ("yarnpkg", "com"), ("pytorch", "org/whl")]  # fmt: skip
    hosts = re.compile("|".join(rf"{a}\.{b}" for a, b in halves))
    named = []
    for path in tracked():
        if path.is_file() and not path.is_symlink():
            text = path.read_bytes().decode("utf-8", errors="replace")
            named += [f"{path.relative_to(ROOT)}: {m.group(0)}" for m in hosts.finditer(text)]
    assert named == []


@pytest.mark.processes
def test_no_file_is_too_long() -> None:
    """One subject a file: 600 lines hold more than enough of one."""
    generated = {"dashboard/package-lock.json", "dashboard/openapi.json"}
    long = []
    for path in tracked():
        name = str(path.relative_to(ROOT))
        wanted = path.suffix in {".py", ".ts", ".tsx", ".css"} and "/client/" not in name
        if wanted and name not in generated and path.is_file():
            lines = path.read_text(encoding="utf-8").count("\n")
            long += [f"{name}: {lines}"] if lines > 600 else []
    assert long == []


@pytest.mark.processes
def test_folder_holds_at_most_16_modules() -> None:
    modules = [
        path.parent
        for path in tracked()
        if re.search(r"(?<!__init__)(?<!conftest)\.(py|tsx?)$", path.name)
        and not re.search(r"\.test\.tsx?$", path.name)
        and not path.is_symlink()
    ]
    assert {folder: n for folder, n in Counter(modules).items() if n > 16} == {}


def test_package_says_what_it_is_for_and_may_import() -> None:
    silent = []
    for name in PACKAGES:
        for path in (ROOT / name).rglob("__init__.py"):
            said = ast.get_docstring(ast.parse(path.read_text())) or ""
            silent += [str(path)] if not re.search("imports?\\b", said) else []
    assert silent == []


def test_packages_of_cluster_name_what_they_import() -> None:
    files = list((ROOT / "cluster").glob("*/__init__.py"))
    packages = {path.parent.name for path in files} - {"simulator"}
    found = {}
    for path in files:
        name = path.parent.name
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
        code = "\n".join(module.read_text() for module in path.parent.rglob("*.py"))
        imported = set(re.findall(r"^ *from trainhall\.cluster\.(\w+)", code, re.MULTILINE))
        named = packages.intersection(re.findall(r"`(\w+)`", text))
        if name in packages and named != packages & imported - {name}:
            found[name] = sorted(packages & imported - {name})
    assert not found, f"write what the package imports: {found}"


def test_compose_and_the_image_use_commands_that_exist() -> None:
    import yaml
    from typer.main import get_command

    from trainhall.cli.main import app

    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    services = compose["services"]
    assert set(services) == {"postgres", "coordinator", "join", "agent"}
    commands = get_command(app).commands  # type: ignore[attr-defined]
    server, *flags = services["coordinator"]["command"]
    known = {option for param in commands[server].params for option in param.opts}
    assert {f for f in flags if f.startswith("--")} <= known
    volumes = {v.split(":")[0] for s in services.values() for v in s.get("volumes", [])}
    assert volumes == set(compose["volumes"])
    image = (ROOT / "Dockerfile").read_text()
    assert 'ENTRYPOINT ["trainhall"]' in image
    for script in re.findall(r"^COPY (?!--from)(.+) \S+$", image, re.MULTILINE):
        for source in script.split():
            assert (ROOT / source).exists(), source
