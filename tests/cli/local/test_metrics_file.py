"""metrics.jsonl holds every step once, in order, whatever happened between."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainhall.cli.base.errors import CliError
from trainhall.cli.local.metrics_file import ChainFile, MetricsFile


def lines_of(path: Path) -> list[dict[str, float | None]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_evaluation_stands_on_its_steps_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path)
    file.add([1, 2], {"loss": [2.0, 1.0]})
    file.add([2], {"eval_loss": [0.5]})
    file.add([3], {"loss": [math.nan]})
    assert [line["step"] for line in lines_of(path)] == [1, 2]
    file.close()
    assert lines_of(path) == [
        {"step": 1, "loss": 2.0},
        {"step": 2, "loss": 1.0, "eval_loss": 0.5},
        {"step": 3, "loss": None},
    ]


def test_metrics_file_drops_a_partial_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "loss": 1.0}\n{"step": 2, "lo')
    file = MetricsFile(path)
    assert file.step == 1
    file.add([1, 2], {"loss": [9.0, 0.5]})
    file.close()
    assert lines_of(path) == [{"step": 1, "loss": 1.0}, {"step": 2, "loss": 0.5}]


@pytest.mark.parametrize("line", ["x", "[]", '{"loss": 1.0}', "\0"])
def test_damaged_metrics_file_is_reported(tmp_path: Path, line: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{line}\n{{"step": 2}}\n')
    file = MetricsFile(path)
    with pytest.raises(CliError, match=r"metrics\.jsonl is damaged: a line in it is not a step"):
        file.cut_after(1)
    path.write_text(f"{line}\n")
    with pytest.raises(CliError, match=r"metrics\.jsonl is damaged: a line in it is not a step"):
        MetricsFile(path)


def test_metrics_file_replaces_repeated_steps(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path)
    file.add([1, 2, 3, 4], {"loss": [4.0, 3.0, 2.0, 1.0]})
    file.close()
    file = MetricsFile(path)
    file.cut_after(2)
    file.add([3, 4, 5], {"loss": [2.5, 1.5, 0.5]})
    file.close()
    assert [(line["step"], line["loss"]) for line in lines_of(path)] == [
        (1, 4.0), (2, 3.0), (3, 2.5), (4, 1.5), (5, 0.5),
    ]  # fmt: skip


@given(
    runs=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10), st.integers(0, 40)), max_size=6)
)
def test_kills_and_resumes_leave_every_step_once(
    tmp_path_factory: pytest.TempPathFactory, runs: list[tuple[int, int, int]]
) -> None:
    """Each run goes on from a step at most the last one, trains, and may be killed in mid-line."""
    path = tmp_path_factory.mktemp("run") / "metrics.jsonl"
    expected: dict[int, float] = {}
    for number, (back, more, cut_off) in enumerate(runs):
        file = MetricsFile(path)
        assert file.step == len(expected)
        start = max(0, file.step - back)
        file.cut_after(start)
        if recover := [s for s in expected if s <= start]:
            # As `--resume` does with what a killed run left in its spool.
            file.cut_after(recover[0] - 1)
            file.add(recover, {"loss": [expected[s] for s in recover]})
            file.cut_after(start)
        expected = {s: v for s, v in expected.items() if s <= start}
        for step in range(start + 1, start + more + 1):
            file.add([step], {"loss": [float(number)]})
            expected[step] = float(number)
        file.close()
        if cut_off and expected:
            whole = path.read_bytes()
            cut = min(cut_off, len(whole.splitlines(keepends=True)[-1]))
            path.write_bytes(whole[:-cut])
            del expected[max(expected)]
    MetricsFile(path).close()
    assert [(line["step"], line["loss"]) for line in lines_of(path)] == list(expected.items())


def test_hash_chain_has_its_own_file(tmp_path: Path) -> None:
    """As rank 0 writes it: metrics of some steps, then their digests, then an evaluation."""
    numbers = {"loss": [2.0, math.nan], "gradient_norm": [0.5, 0.25], "learning_rate": [0.1, 0.1]}
    digests = {"chain_link": [10.0, 11.0], "chain_samples": [2.0**52 - 1, 0.0]}
    for _ in range(2):
        file = MetricsFile(tmp_path / "metrics.jsonl", ChainFile(tmp_path / "chain.jsonl"))
        file.cut_after(0)
        file.add([1, 2], numbers)
        file.add([1, 2], digests)
        file.add([2], {"chain_weights": [3.0]})
        file.add([2], {"eval_loss": [4.0]})
        file.close()
        assert lines_of(tmp_path / "chain.jsonl") == [
            {
                "step": 1,
                "loss": 2.0,
                "gradient_norm": 0.5,
                "link": "000000000000a",
                "samples": "fffffffffffff",
            },
            {
                "step": 2,
                "loss": None,
                "gradient_norm": 0.25,
                "link": "000000000000b",
                "samples": "0000000000000",
                "weights": "0000000000003",
            },
        ]
        last = lines_of(tmp_path / "metrics.jsonl")[-1]
        assert last == {
            "step": 2, "loss": None, "gradient_norm": 0.25, "learning_rate": 0.1, "eval_loss": 4.0
        }  # fmt: skip
