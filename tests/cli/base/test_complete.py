"""The tab key offers what the coordinator knows, and is silent when it is away."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from support.cluster.cluster import TRAINHALL
from support.cluster.rest import answering
from typer.main import get_command

from trainhall.cli.base import complete
from trainhall.cli.main import app

LISTS = {
    "/api/v1/training/jobs": [
        {
            "id": "3f2a9c51d07b", "name": "digits", "state": "running",
            "spec": {"parameters": {"lr": 0.1}}, "metrics": {"loss": 0.5, "val/f1": 0.9},
        },
        {"id": "91bc00000000", "name": "with: \\$(touch owned) [/b]", "state": "failed"},
    ],
    "/api/v1/cluster/nodes": [{"id": "n1", "name": "gpu-07", "state": "ready"}],
    "/api/v1/checkpoints/jobs/3f2a9c51d07b": [
        {"id": "5e60b7d2f913", "step": 100, "state": "committed"}
    ],
    "/api/v1/checkpoints/jobs/91bc00000000": [],
}  # fmt: skip


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with answering({path: {"items": items} for path, items in LISTS.items()}) as address:
        yield address


def press_tab(line: str, folder: Path, shell: str = "bash", **env: str) -> list[str]:
    """What the shell is offered when the line is completed at its end."""
    words = line.split(" ")
    asked = {
        "_TRAINHALL_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TRAINHALL_")}
    # The patience of a person at a keyboard is not that of a test on a busy host.
    program = (
        "import sys; sys.argv[0] = 'trainhall'\n"
        "from trainhall.cli import main\nfrom trainhall.cli.base import complete\n"
        "complete.PATIENCE_SECONDS = 30; main.main()"
    )
    done = subprocess.run(
        [TRAINHALL[0], "-c", program], capture_output=True, text=True, check=False, cwd=folder,
        env=clean | asked | env,
    )  # fmt: skip
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if line]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("trainhall show ", ["3f2a9c51d07b", "91bc00000000"]),
        ("trainhall pause 3f", ["3f2a9c51d07b"]),
        ("trainhall cancel 91bc00000000 3", ["3f2a9c51d07b"]),
        ("trainhall nodes remove g", ["gpu-07"]),
        ("trainhall ckpt restore ", ["5e60b7d2f913"]),
        ("trainhall logs none", []),
        ("trainhall ls --sort st", ["state", "strategy", "started_at", "step"]),
        ("trainhall ls --sort m", ["metrics.loss"]),
        ("trainhall ls --sort par", ["parameters.lr"]),
        ("trainhall ls --sort -m", ["-metrics.loss"]),
        ("trainhall ls --queue --sort -st", ["-state", "-strategy", "-started_at", "-step"]),
        ("trainhall ls --queue --se", ["--search"]),
    ],
)
def test_ids_are_offered(line: str, offered: list[str], url: str, tmp_path: Path) -> None:
    assert press_tab(line, tmp_path, TRAINHALL_URL=url) == offered


@pytest.mark.processes
@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_describes_ids(shell: str, url: str, tmp_path: Path) -> None:
    offered = "\n".join(press_tab("trainhall show 3", tmp_path, shell, TRAINHALL_URL=url))
    assert "3f2a9c51d07b" in offered
    assert "digits, running" in offered


@pytest.mark.processes
def test_name_is_no_program(url: str, tmp_path: Path) -> None:
    offered = "\n".join(press_tab("trainhall show 9", tmp_path, "zsh", TRAINHALL_URL=url))
    assert "91bc00000000" in offered
    assert not {"$", "\\", "`"} & {*offered.replace("\\\\:", "")}, offered


@pytest.mark.processes
def test_completion_uses_the_configured_server(url: str, tmp_path: Path) -> None:
    (tmp_path / "trainhall.toml").write_text(f'url = "{url}"\n')
    assert press_tab("trainhall nodes remove ", tmp_path) == ["gpu-07"]


@pytest.mark.processes
@pytest.mark.parametrize("away", ["http://127.0.0.1:9", "nonsense", "http://127.0.0.1:9/%"])
def test_completion_is_empty_without_coordinator(away: str, tmp_path: Path) -> None:
    assert press_tab("trainhall show ", tmp_path, TRAINHALL_URL=away) == []


@pytest.mark.parametrize(
    "items",
    [[1], [{"id": "3f2a"}], [{"id": 3, "name": "a", "state": "b"}], {"id": "3f2a"}, "abc", None],
)
def test_completion_is_empty_at_another_server(
    items: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    with answering({"/api/v1/training/jobs": {"items": items}}) as address:
        monkeypatch.setattr(complete, "PATIENCE_SECONDS", 30)
        context = typer.Context(get_command(app))
        context.params["url"] = address
        assert complete.jobs(context, "") == []
        assert complete.checkpoints(context, "") == []
        assert complete.sort_keys(context, "-n") == [("-name", "")]


@pytest.mark.processes
def test_completion_imports_nothing_heavy() -> None:
    code = (
        "import sys; from trainhall.cli.base import complete\n"
        "print({'httpx', 'pydantic', 'rich', 'yaml'} & set(sys.modules))"
    )
    done = subprocess.run([TRAINHALL[0], "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "set()\n"
