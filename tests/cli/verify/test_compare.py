"""`trainhall verify --compare` on output folders of `trainhall run`."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from trainhall.cli.base.errors import CliError
from trainhall.cli.jobs.chains import newest_link
from trainhall.cli.main import app
from trainhall.training.hash_chain.chain import LINK, as_text


def folder(path: Path, *losses: float | None, samples: str = "5a") -> str:
    """A folder whose links are those of its losses."""
    path.mkdir()
    lines: list[dict[str, Any]] = [
        {"step": step, "loss": loss, "gradient_norm": 1.0, "samples": samples,
         "link": repr(losses[:step])}
        for step, loss in enumerate(losses, start=1)
    ]  # fmt: skip
    (path / "chain.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def verify(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["verify", *arguments])
    return result.exit_code, result.output


def refused(*arguments: str) -> str:
    """What a user is told beside the exit code."""
    error = CliRunner().invoke(app, ["verify", *arguments]).exception
    assert isinstance(error, CliError)
    return error.message


def test_equal_runs(tmp_path: Path) -> None:
    runs = folder(tmp_path / "a", 3.0, 2.0), folder(tmp_path / "b", 3.0, 2.0, 1.0)
    message = "The runs are identical in all 2 steps that both have.\n"
    assert verify("--compare", *runs) == (0, message)


def test_runs_that_part(tmp_path: Path) -> None:
    runs = folder(tmp_path / "a", 3.0, 2.0, 1.0), folder(tmp_path / "b", 3.0, None, 1.0)
    message = "The runs diverge at step 2:\n  loss: 2.0 and None\n"
    assert verify("--compare", *runs) == (1, message)
    code, text = verify("--compare", *runs, "-o", "json")
    assert code == 1
    assert json.loads(text) == {
        "same": False, "compared_steps": 3, "step": 2, "differs": {"loss": [2.0, None]}
    }  # fmt: skip


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "has no hash chain; only runs with training.reproducible: true can be compared"),
        ("", "has no step yet"),
        ("{", "cannot be read"),
        ('{"step": 1, "weights": "aa"}\n', "step 1 is not in"),
    ],
)
def test_folders_that_cannot_be_compared(tmp_path: Path, content: str | None, words: str) -> None:
    good = folder(tmp_path / "good", 1.0)
    bad = tmp_path / "bad"
    bad.mkdir()
    if content is not None:
        (bad / "chain.jsonl").write_text(content)
    assert words in refused("--compare", good, str(bad))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give a FILE with a job spec, or --compare JOB JOB"),
        (("job.yaml", "--compare", "a", "b"), "leave FILE out"),
    ],
)
def test_file_or_two_runs(arguments: tuple[str, ...], words: str) -> None:
    assert words in refused(*arguments)


class OnlyLinks:
    """A client of a job whose other series have no point at the newest step."""

    def get(self, path: str, *, names: str, **span: int) -> Any:
        points = [{"step": 7, "value": 1.5}]
        return {"series": [{"name": LINK, "rank": None, "points": points}] if names == LINK else []}


def test_newest_link_needs_no_other_series() -> None:
    client: Any = OnlyLinks()
    job = {"id": "a", "name": "digits", "spec": {"training": {"reproducible": True}}}
    assert newest_link(client, job) == f"{as_text(1.5)} at step 7"


@pytest.mark.parametrize("line", ['{"loss": 1.0}', '{"step": "1"}', "7", "[]"])
def test_malformed_step_line_is_numbered(tmp_path: Path, line: str) -> None:
    one = folder(tmp_path / "one", 1.0)
    path = tmp_path / "one" / "chain.jsonl"
    path.write_text(path.read_text() + line + "\n")
    message = refused("--compare", one, folder(tmp_path / "other", 1.0))
    assert message == f"{path} cannot be read: line 2 is not a step of a hash chain"
