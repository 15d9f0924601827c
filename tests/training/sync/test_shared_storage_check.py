"""Hosts that do not share `checkpoint.path` fail before the first step."""

import json
from pathlib import Path

from support.cluster.attempts import RankServer


def prove(ranks: RankServer, folder: Path, *folders: Path) -> list[str]:
    (folder / "folders.json").write_text(json.dumps([str(f) for f in folders]))
    assert ranks.call("support.groups.shared_folder:prove", len(folders), folder) == [0, 0]
    return [(folder / f"error{rank}").read_text() for rank in range(len(folders))]


def test_shared_folder_passes_and_stays_clean(ranks: RankServer, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    assert prove(ranks, tmp_path, shared, shared) == ["", ""]
    assert list(shared.iterdir()) == []


def test_unshared_folders_are_detected_on_all_ranks(ranks: RankServer, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for message in prove(ranks, tmp_path, tmp_path / "a", tmp_path / "b"):
        assert "does not see what rank 0 writes" in message
        assert "leave checkpoint.path out" in message


def test_folder_that_cannot_be_written_is_named(ranks: RankServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    first, second = prove(ranks, tmp_path, tmp_path / "file", tmp_path / "file")
    assert first == second
    assert f"rank 0 cannot write in {tmp_path / 'file'}: File exists; name a folder" in first
