"""Archives of code: the same bytes everywhere, and nothing hostile is ever unpacked."""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from trainhall.cluster.wire import code_archive
from trainhall.cluster.wire.code_archive import ArchiveError, Contents, Item, inspect, pack, unpack


def items(folder: Path) -> list[Item]:
    found = [p for p in folder.rglob("*") if p.is_symlink() or p.is_file()]
    return [Item(p.relative_to(folder).as_posix(), p, 0) for p in found]


def packed(folder: Path, to: Path) -> str:
    with to.open("wb") as file:
        return pack(items(folder), file)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "code"
    (made / "pkg").mkdir(parents=True)
    (made / "train.py").write_text("print('hello')\n")
    (made / "pkg" / "däta.txt").write_text("x" * 5000)
    (made / "run.sh").write_text("#!/bin/sh\n")
    (made / "run.sh").chmod(0o700)
    (made / "pkg" / "link.py").symlink_to("../train.py")
    return made


def test_archived_folder_is_restored_exactly(folder: Path, tmp_path: Path) -> None:
    sha256 = packed(folder, tmp_path / "a.tar")
    data = (tmp_path / "a.tar").read_bytes()
    assert hashlib.sha256(data).hexdigest() == sha256
    unpacked = tmp_path / "there" / "unpacked"
    assert unpack(tmp_path / "a.tar", unpacked) == Contents(files=4, size=5000 + 15 + 10)
    assert (unpacked / "pkg" / "däta.txt").read_text() == "x" * 5000
    assert (unpacked / "pkg" / "link.py").read_text() == "print('hello')\n"
    assert (unpacked / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (unpacked / "train.py").stat().st_mode & 0o777 == 0o644
    assert [p.name for p in unpacked.parent.iterdir()] == ["unpacked"]


def test_same_content_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    first = packed(folder, tmp_path / "a.tar")
    (folder / "train.py").touch()
    (folder / "train.py").chmod(0o600)
    assert packed(folder, tmp_path / "b.tar") == first
    (folder / "train.py").write_text("print('other')\n")
    assert packed(folder, tmp_path / "c.tar") != first


def test_archive_of_tar_itself_is_fine(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "made.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.add(folder, ".")
    unpack(path, tmp_path / "unpacked")
    assert (tmp_path / "unpacked" / "pkg" / "link.py").is_symlink()


def member(name: str, data: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, data


def link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, type=tarfile.SYMTYPE, linkname=target)


def written(path: Path, members: list[tuple[tarfile.TarInfo, bytes]]) -> Path:
    with tarfile.open(path, "w") as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return path


HOSTILE = {
    "up": ([member("../evil", b"x")], "points outside"),
    "up within": ([member("a/../../evil", b"x")], "points outside"),
    "absolute": ([member("/tmp/evil", b"x")], "absolute path"),
    "absolute link": ([link("l", "/etc/passwd")], "link that may lead out"),
    "link out": ([link("a/l", "../../x")], "link that may lead out"),
    "link to the folder itself": ([link("l", ""), member("a")], "link that may lead out"),
    "link with control characters": ([link("l", "a\x1b[2Jb")], "which has control characters"),
    "link with NUL": ([link("l", "a\0" + "b" * 100)], "control characters"),
    "link to a long name": ([link("l", "/".join(["a" * 200] * 6))], "too long a name"),
    "link by way of a link": (
        [link("a/b/up", "../.."), link("out", "a/b/up/../x")], "link that may lead out",
    ),
    "file through a link": ([link("l", "a"), member("l/x", b"x")], "which is not a folder"),
    "link over a folder": ([member("l/x", b"x"), link("l", "a")], "twice"),
    "file below a file": ([member("f", b"x"), member("f/x", b"x")], "which is not a folder"),
    "twice": ([member("a", b"1"), member("./a", b"2")], "twice"),
    "device": ([member("d", type=tarfile.CHRTYPE)], "device"),
    "pipe": ([member("d", type=tarfile.FIFOTYPE)], "device"),
    "hard link": ([member("a", b"x"), member("h", type=tarfile.LNKTYPE, linkname="a")], "hard"),
    "line break": ([member("a\nb", b"x")], "control characters"),
    "long": ([member("/".join(["d" * 60] * 20), b"x")], "too long"),
    "deep": ([member("d/" * 100 + "f", b"x")], "folders deep"),
    "long part": ([member("d" * 256, b"x")], "too long"),
    "empty": ([member("folder", type=tarfile.DIRTYPE)], "no file"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archive_is_refused_without_writes(name: str, tmp_path: Path) -> None:
    members, why = HOSTILE[name]
    path = written(tmp_path / "hostile.tar", [member("good.py", b"x"), *members])
    if name == "empty":
        path = written(path, members)
    with pytest.raises(ArchiveError, match=why):
        unpack(path, tmp_path / "unpacked")
    assert [p.name for p in tmp_path.iterdir()] == ["hostile.tar"]


def test_links_within_are_kept(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tar", [member("a/b/f", b"x"), link("a/b/up", "../.."),
                                        link("deep", "a/b/up/a/b/f")])  # fmt: skip
    unpack(path, tmp_path / "unpacked")
    assert (tmp_path / "unpacked" / "deep").read_text() == "x"


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda data: data[:700], "cut short|not a tar"),
        (lambda data: data[: len(data) - 2000].rstrip(b"\0"), "cut short|not a tar"),
        (lambda data: b"PK\x03\x04" + bytes(2000), "not a tar archive"),
        (lambda data: b"", "not a tar archive"),
        (lambda data: gzip.compress(data)[:-20], "not a tar archive"),
        (lambda data: gzip.compress(data)[:60] + b"junk", "not a tar archive"),
        (lambda data: data[:20] + b"\xff" * 300 + data[320:], "not a tar archive"),
    ],
)
def test_non_archive_is_refused(
    folder: Path, tmp_path: Path, spoil: Callable[[bytes], bytes], why: str
) -> None:
    packed(folder, tmp_path / "a.tar")
    (tmp_path / "b.tar").write_bytes(spoil((tmp_path / "a.tar").read_bytes()))
    with pytest.raises(ArchiveError, match=why):
        inspect(tmp_path / "b.tar")


def test_bomb_is_refused_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_archive, "MAX_UNPACKED_BYTES", 1_000_000)
    monkeypatch.setattr(code_archive, "MAX_FILES", 100)
    zeros = gzip.compress(bytes(5_000_000))
    (tmp_path / "zeros.tar.gz").write_bytes(zeros)
    big = written(tmp_path / "big.tar", [member("a", bytes(600_000)), member("b", bytes(600_000))])
    # A header that announces far more than the file holds is read no further than the limit.
    info = tarfile.TarInfo("huge")
    info.size = 10**12
    (tmp_path / "huge.tar").write_bytes(info.tobuf() + bytes(2048))
    pax = tarfile.TarInfo("pax")
    pax.type, pax.size = tarfile.XHDTYPE, 8_000_000
    (tmp_path / "pax.tar.gz").write_bytes(gzip.compress(pax.tobuf() + b"1" * 8_000_000))
    for path in (big, *tmp_path.glob("*.gz"), tmp_path / "huge.tar"):
        with pytest.raises(ArchiveError, match=r"MiB|not a tar"):
            inspect(path)
    sparse = member("s", type=tarfile.GNUTYPE_SPARSE)
    with pytest.raises(ArchiveError):
        inspect(written(tmp_path / "sparse.tar", [sparse]))


def test_very_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_archive, "MAX_FILES", 1_000)
    path = written(tmp_path / "many.tar", [member(f"d/{i}") for i in range(1_001)])
    with pytest.raises(ArchiveError, match="more than 1,000 files"):
        inspect(path)


def test_very_many_folders_are_refused(tmp_path: Path) -> None:
    deep = "/".join("d" * 50)
    path = written(tmp_path / "many.tar", [member(f"{i}/{deep}/f") for i in range(450)])
    with pytest.raises(ArchiveError, match="more than 20,000 files and folders"):
        inspect(path)


def test_headers_without_end_are_refused(tmp_path: Path) -> None:
    long_name, _ = member("L", type=tarfile.GNUTYPE_LONGNAME)
    long_name.size = 2
    block = long_name.tobuf(tarfile.USTAR_FORMAT) + b"a\0".ljust(512, b"\0")
    (tmp_path / "a.tar").write_bytes(block * 1500 + bytes(10240))
    with pytest.raises(ArchiveError, match="not a tar archive"):
        inspect(tmp_path / "a.tar")
