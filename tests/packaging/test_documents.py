"""Documents say what is: generated ones are current, links lead somewhere, commands exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
import yaml

from trainhall.cli.main import app
from trainhall.cluster.experiments.runs import plan_configurations
from trainhall.cluster.experiments.spec import parse_experiment
from trainhall.training.spec import parse_spec

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.processes
def test_generated_documents_are_current() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "generate_docs.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for path, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", text):
        target = page.parent / path if path else page
        if not path.startswith("http"):
            assert target.exists(), path
            assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_paths_in_documents_exist(page: Path) -> None:
    for path in re.findall(r"`((?:\w+/)+(?:\w+\.(?:py|sh))?)`", page.read_text(encoding="utf-8")):
        if (ROOT / path.split("/")[0] / "__init__.py").exists() or path.endswith((".py", ".sh")):
            assert (ROOT / path).exists(), path


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_commands_in_documents_exist(page: Path) -> None:
    command = typer.main.get_command(app)
    for line in re.findall(r"(?:^|`)trainhall ([a-z].*)", page.read_text(encoding="utf-8"), re.M):
        # What follows ` -- ` is a program of the job's.
        words = re.split(r"[`|&#]| -- ", line)[0].split()
        found = command
        for word in words:
            if not hasattr(found, "commands"):
                break
            assert word in found.commands, line
            found = found.commands[word]
        known = {
            option for param in found.params for option in (*param.opts, *param.secondary_opts)
        }
        for word in words:
            if word.startswith("--"):
                assert word.split("=")[0] in known | {"--help"}, line


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_job_specs_in_documents_are_valid(page: Path) -> None:
    for block in re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.S):
        if re.search(r"^kind: ", block, re.M):
            # The command sends the hash of the folder's archive in place of its name.
            sent = re.sub(r"^  code: .*", f"  code: {'0' * 64!r}", block, flags=re.M)
            assert plan_configurations(parse_experiment(sent, "yaml"))
        else:
            parse_spec(block, folder=page.parent)


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_diagrams_hold_no_semicolon(page: Path) -> None:
    """It ends a statement of mermaid, also within a message."""
    for block in re.findall(r"```mermaid\n(.*?)```", page.read_text(encoding="utf-8"), re.S):
        assert ";" not in block


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.yaml")), ids=ids)
def test_examples_are_valid(example: Path) -> None:
    spec = parse_spec(example.read_bytes(), folder=example.parent)
    assert spec.name == yaml.safe_load(example.read_text())["name"]


@pytest.mark.parametrize(
    "example", sorted((ROOT / "examples" / "experiments").glob("*.yaml")), ids=ids
)
def test_examples_of_experiments_are_valid(example: Path) -> None:
    assert plan_configurations(parse_experiment(example.read_bytes(), "yaml"))


def test_make_targets_in_documents_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    for page in PAGES:
        for target in re.findall(r"(?:^|`)make ([a-z]+)", page.read_text(encoding="utf-8"), re.M):
            assert target in targets, f"{ids(page)}: make {target}"


def test_index_lists_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"\]\(([a-z-]+\.md)\)", index))
    assert listed == {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}


def test_files_that_contributing_names_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = re.findall(r"[ `=]((?:[a-z_.-]+/)+[a-zA-Z_.-]*)`", text)
    assert len(paths) >= 20
    for path in paths:
        assert path.startswith(".venv/") or (ROOT / path).exists(), path
