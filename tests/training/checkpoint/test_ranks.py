"""Ranks save and load together, on Gloo."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from support.cluster.attempts import RankServer

from trainhall.training.checkpoint import storage
from trainhall.training.checkpoint.checkpointer import Checkpointer
from trainhall.training.checkpoint.format.draft import Committed
from trainhall.training.fencing import FencingToken


def call(ranks: RankServer, function: str, world_size: int, folder: Path) -> None:
    codes = ranks.call(f"support.groups.checkpoint:{function}", world_size, folder)
    errors = [p.read_text() for p in sorted(folder.glob("ranks/*/stderr.log"))]
    shutil.rmtree(folder / "ranks")
    assert codes == [0] * world_size, "\n".join(errors)


def save_alone(folder: Path, step: int) -> str:
    messages: list[str] = []
    checkpointer = Checkpointer(
        folder, FencingToken("job", 1, 1), None, lambda c: messages.append(c.name)
    )
    checkpointer.save(step, {"model": {"weight": torch.full((4,), float(step))}})
    checkpointer.wait()
    return messages[0]


def test_replicated_ranks_save_and_load_while_they_train(ranks: RankServer, tmp_path: Path) -> None:
    call(ranks, "replicate", 2, tmp_path)


def outcomes(ranks: RankServer, folder: Path, *names: list[str]) -> list[dict[str, Any]]:
    """What two ranks make of the same names, or of their own."""
    (folder / "names.json").write_text(json.dumps(names if len(names) == 2 else names * 2))
    call(ranks, "choose_alike", 2, folder)
    return [json.loads((folder / f"outcome{rank}.json").read_text()) for rank in range(2)]


def test_all_ranks_take_the_same_checkpoint(ranks: RankServer, tmp_path: Path) -> None:
    old, new = save_alone(tmp_path / "host0", 1), save_alone(tmp_path / "host0", 2)
    shutil.copytree(tmp_path / "host0", tmp_path / "host1")
    first, second = outcomes(ranks, tmp_path, [new, old])
    assert first == second == {"name": new, "notes": []}

    first, second = outcomes(ranks, tmp_path, [new, old], [old])
    message = f"{new} was not used: rank 1 does not have it"
    assert first == second == {"name": old, "notes": [message]}
    first, second = outcomes(ranks, tmp_path, [old], [new, old])
    message = f"{new} was not used: rank 0 does not have it"
    assert first == second == {"name": old, "notes": [message]}

    # Nobody missed an older one.
    for names in ([new], [new, old]), ([new, old], [new]):
        first, second = outcomes(ranks, tmp_path, *names)
        assert first == second == {"name": new, "notes": []}

    (tmp_path / "host1" / new / "state.json").unlink()
    first, second = outcomes(ranks, tmp_path, [new, old])
    assert first == second
    assert first["name"] == old
    [note] = first["notes"]
    assert note.startswith(f"{new} was not used: on rank 1: state.json: expected a file of")

    shutil.rmtree(tmp_path / "host1" / old)
    (tmp_path / "host1" / "elsewhere").mkdir()
    save_alone(tmp_path / "host1" / "elsewhere", 1)
    shutil.move(tmp_path / "host1" / "elsewhere" / old, tmp_path / "host1" / old)
    first, second = outcomes(ranks, tmp_path, [old])
    assert first == second
    assert first["notes"] == [
        f"{old} was not used: the ranks see different checkpoints under this name"
    ]


def test_load_reports_checkpoints_missing_on_host(ranks: RankServer, tmp_path: Path) -> None:
    save_alone(tmp_path / "host0", 9)
    old = save_alone(tmp_path / "host1", 1)
    first, second = outcomes(ranks, tmp_path, ["step-00000009-a1-g1"], [old])
    assert first == second == {
        "name": None,
        "notes": [
            "step-00000009-a1-g1 was not used: rank 1 does not have it: its copy is damaged",
            f"{old} was not used: rank 0 does not have it",
        ],
    }  # fmt: skip


def test_ranks_of_a_host_share_the_hashing(ranks: RankServer, tmp_path: Path) -> None:
    name = save_alone(tmp_path, 1)
    for damaged in (None, "state.json", "tensors-00000-00000.safetensors"):
        if damaged is not None:
            path = tmp_path / name / damaged
            data = bytearray(path.read_bytes())
            data[-1] ^= 1
            path.write_bytes(data)
        call(ranks, "share_the_hashing", 2, tmp_path)
        hashed = [json.loads((tmp_path / f"hashed{rank}.json").read_text()) for rank in range(2)]
        (first, why), (second, same) = hashed
        assert first, "one rank did all the work"
        assert sorted(first + second) == ["state.json", "tensors-00000-00000.safetensors"]
        assert why == same
        assert why is None if damaged is None else f"{damaged}: expected SHA-256" in why
        if damaged is not None:
            data[-1] ^= 1
            path.write_bytes(data)


def test_mismatch_on_one_rank_stops_all(ranks: RankServer, tmp_path: Path) -> None:
    save_alone(tmp_path, 1)
    call(ranks, "mismatch_on_one", 2, tmp_path)


@pytest.fixture(scope="module")
def sharded(ranks: RankServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sharded")
    call(ranks, "save_sharded", 2, folder)
    return folder


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_sharded_checkpoints_load_on_any_number_of_ranks(
    ranks: RankServer, sharded: Path, world_size: int
) -> None:
    call(ranks, "load_sharded", world_size, sharded)


def test_full_disk_fails_save_on_all_ranks(ranks: RankServer, tmp_path: Path) -> None:
    call(ranks, "fail_on_one", 2, tmp_path)


def test_rank_begins_new_file_before_one_is_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "MAX_FILE_BYTES", 30)
    committed: list[Committed] = []
    checkpointer = Checkpointer(tmp_path, FencingToken("job", 1, 1), None, committed.append)
    state = {"a": torch.randn(3, 4), "b": {"c": torch.arange(5)}, "d": torch.tensor(1.5)}
    checkpointer.save(1, state)
    checkpointer.wait()
    assert len([f for f in committed[0].files if f.path.startswith("tensors")]) == 3
    target = {"a": torch.zeros(3, 4), "b": {"c": torch.zeros(5).long()}, "d": torch.tensor(0.0)}
    checkpointer.load([committed[0].name], target)
    torch.testing.assert_close(target, state, rtol=0, atol=0)
