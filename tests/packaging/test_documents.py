"""Documents say what is: generated ones are current, links lead somewhere, commands exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
import yaml

from trainhall.cli.main import app
from trainhall.training.spec import parse_spec

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_generated_documents_are_current() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "generate_docs.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_commands_in_documents_exist(page: Path) -> None:
    command = typer.main.get_command(app)
    for line in re.findall(r"(?:^|`)trainhall ([a-z].*)", page.read_text(encoding="utf-8"), re.M):
        words = re.split(r"[`|&#]", line)[0].split()
        found = command
        for word in words:
            if not hasattr(found, "commands"):
                break
            assert word in found.commands, line
            found = found.commands[word]
        known = {option for param in found.params for option in param.opts}
        for word in words:
            if word.startswith("--"):
                assert word.split("=")[0] in known | {"--help"}, line


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_job_specs_in_documents_are_valid(page: Path) -> None:
    for block in re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.S):
        parse_spec(block, folder=page.parent)


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.yaml")), ids=ids)
def test_examples_are_valid(example: Path) -> None:
    spec = parse_spec(example.read_bytes(), folder=example.parent)
    assert spec.name == yaml.safe_load(example.read_text())["name"]


def test_make_targets_in_documents_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    for page in PAGES:
        for target in re.findall(r"(?:^|`)make ([a-z]+)", page.read_text(encoding="utf-8"), re.M):
            assert target in targets, f"{ids(page)}: make {target}"
