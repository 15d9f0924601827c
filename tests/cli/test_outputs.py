"""Outputs of jobs on their way to a user's host: chosen, resumed, verified, kept in a folder."""

import hashlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from trainhall.cli.base.errors import CliError, NotFoundError, UnreachableError, UsageError
from trainhall.cli.base.options import Format
from trainhall.cli.outputs import commands, download

JOB = "3f2a9c51d07b"


class Coordinator:
    """A client of a coordinator with one job, whose connection may break."""

    def __init__(self, contents: dict[str, bytes]) -> None:
        self.contents = contents
        self.asked: list[tuple[str, int]] = []
        self.breaks_after: list[int] = []
        """Bytes after which the next connections break."""

    def __enter__(self) -> "Coordinator":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def job_id(self, reference: str) -> str:
        return f"{reference:0<12}"

    def items(
        self, path: str, rank: int | None, find: str | None = None
    ) -> Iterator[dict[str, Any]]:
        for name, content in sorted(self.contents.items()):
            if find is not None and find not in name:
                continue
            yield {
                "path": name, "size": len(content), "sha256": hashlib.sha256(content).hexdigest(),
                "modified_at": "2026-11-20T12:00:00Z", "attempt": 1, "rank": rank or 0,
            }  # fmt: skip

    def stream(self, path: str, *, start: int = 0, rank: int | None = None) -> Iterator[bytes]:
        name = unquote(path.partition("/files/")[2])
        self.asked.append((name, start))
        content = self.contents[name][start:]
        if self.breaks_after:
            yield content[: self.breaks_after.pop(0)]
            raise UnreachableError("the connection broke")
        yield content


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    known = Coordinator({"a.csv": b"1,2\n", "media/x/10.png": b"\x89PNG\0", "media/y.json": b"{}"})
    monkeypatch.setattr(commands, "connect", lambda _: known)
    monkeypatch.setattr(download, "FIRST_PAUSE", 0.0)
    return known


def get(to: Path, *paths: str) -> None:
    commands.get("3f2a9c51d07b", list(paths), to, None, Format.TABLE, "")


def below(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_get_brings_all_files_once(
    coordinator: Coordinator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "results"
    get(to)
    assert below(to) == coordinator.contents
    assert (to / "a.csv").stat().st_mtime == 1795176000
    assert capsys.readouterr().out == f"3 files (11 B) in {to}\n"
    (to / "a.csv").write_bytes(b"mine")
    get(to)
    assert below(to) == coordinator.contents
    assert capsys.readouterr().out == f"3 files (11 B) in {to}, 2 of them already there\n"


@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        (["a.csv"], ["a.csv"]),
        (["media"], ["media/x/10.png", "media/y.json"]),
        (["*.json", "media/x/"], ["media/x/10.png", "media/y.json"]),
    ],
)
def test_patterns_choose_files(
    coordinator: Coordinator, tmp_path: Path, patterns: list[str], found: list[str]
) -> None:
    get(tmp_path, *patterns)
    assert sorted(below(tmp_path)) == found


def test_pattern_without_a_match_is_an_error(coordinator: Coordinator, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no output '\*\.pt'"):
        get(tmp_path, "*.pt")


def test_broken_download_continues(coordinator: Coordinator, tmp_path: Path) -> None:
    coordinator.contents = {"big": bytes(range(200))}
    coordinator.breaks_after = [50, 70]
    get(tmp_path)
    assert below(tmp_path) == coordinator.contents
    assert coordinator.asked == [("big", 0), ("big", 50), ("big", 120)]


def test_interrupted_command_continues(coordinator: Coordinator, tmp_path: Path) -> None:
    coordinator.contents = {"big": bytes(range(200))}
    coordinator.breaks_after = [50, *[0] * download.ATTEMPTS]
    with pytest.raises(UnreachableError):
        get(tmp_path)
    assert "big" not in below(tmp_path)
    coordinator.breaks_after.clear()
    coordinator.asked.clear()
    get(tmp_path)
    assert below(tmp_path) == coordinator.contents
    assert coordinator.asked == [("big", 50)]


def test_damaged_download_leaves_nothing(coordinator: Coordinator, tmp_path: Path) -> None:
    listed = list(coordinator.items("", None))
    coordinator.contents["a.csv"] = b"1,3\n"
    with pytest.raises(CliError, match=r"a\.csv arrived damaged"):
        download.fetch(coordinator, JOB, listed[0], tmp_path, None)  # type: ignore[arg-type]
    assert below(tmp_path) == {}


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", ".", r"a\x2e", "a//b"])
def test_names_that_lead_outside_are_refused(
    coordinator: Coordinator, tmp_path: Path, name: str
) -> None:
    coordinator.contents = {name: b"x"}
    with pytest.raises(CliError, match="is not the name of an output"):
        get(tmp_path / "in")
    assert below(tmp_path) == {}


def test_links_in_the_folder_are_not_followed(coordinator: Coordinator, tmp_path: Path) -> None:
    to, outside = tmp_path / "to", tmp_path / "outside"
    to.mkdir()
    outside.mkdir()
    (outside / "a.csv").write_bytes(b"kept")
    (to / "media").symlink_to(outside)
    (to / "a.csv").symlink_to(outside / "a.csv")
    get(to, "a.csv")
    with pytest.raises(CliError, match="would be written outside"):
        get(to)
    assert below(outside) == {"a.csv": b"kept"}
    assert (to / "a.csv").read_bytes() == b"1,2\n"


def test_names_get_their_bytes_back(coordinator: Coordinator, tmp_path: Path) -> None:
    coordinator.contents = {r"line\x0abreak": b"1", r"back\\slash": b"2", r"bad\xff": b"3"}
    get(tmp_path)
    assert sorted(map(os.fsencode, below(tmp_path))) == [b"back\\slash", b"bad\xff", b"line\nbreak"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_cat_writes_text_alone_to_a_terminal(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator.contents["t"] = "größe\n\x1b]0;title\x07\x1b[31mred".encode()
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    commands.cat(JOB, ["t"], None, "")
    assert terminal.getvalue() == "größe\n\x1b[31mred"
    with pytest.raises(UsageError, match=r"media/x/10\.png is not text.* outputs get"):
        commands.cat(JOB, ["media/x/10.png"], None, "")


def test_cat_writes_bytes_elsewhere(
    coordinator: Coordinator, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    commands.cat(JOB, ["media/*"], 3, "")
    assert capfdbinary.readouterr().out == b"\x89PNG\0{}"


def test_ls_prints_sizes_and_paths(
    coordinator: Coordinator, capsys: pytest.CaptureFixture[str]
) -> None:
    commands.list_outputs(JOB, ["media"], None, None, Format.NAME, "")
    assert capsys.readouterr().out == "media/x/10.png\nmedia/y.json\n"
    commands.list_outputs(JOB, None, None, "csv", Format.NAME, "")
    assert capsys.readouterr().out == "a.csv\n"
    commands.list_outputs(JOB, None, 4, None, Format.TABLE, "")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["SIZE", "ATTEMPT", "RANK", "AGE", "PATH"]
    assert lines[1].split()[:4] == ["4", "B", "1", "4"]
    assert lines[1].endswith("a.csv")
