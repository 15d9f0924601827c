"""Which files of a folder go with a job, and what is told when they cannot."""

import os
import re
from pathlib import Path

import pytest

from trainhall.cli.base.errors import UsageError
from trainhall.cli.spec import code
from trainhall.cluster.wire.code_archive import unpack
from trainhall.training.spec import ScriptSpec


def names(folder: Path, tmp_path: Path) -> set[str]:
    """The files that come out at the other end."""
    packed = code.packed(folder)
    archive, there = tmp_path / packed.sha256, tmp_path / f"{packed.sha256}-there"
    archive.write_bytes(packed.archive)
    if not there.exists():
        unpack(archive, there)
    found = {p.relative_to(there).as_posix() for p in there.rglob("*") if not p.is_dir()}
    assert found == packed.names
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "lab"
    for name in ("train.py", "pkg/a.py", "pkg/__pycache__/a.pyc", ".git/HEAD", "env/pyvenv.cfg",
                 "env/lib/x.py", "ran/metrics.jsonl", "ran/attempts/1/a.log", "ran/result.json",
                 "data/big.bin", "data/keep.txt", "notes.md"):  # fmt: skip
        path = made / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return made


def test_code_archive_excludes_default_patterns(folder: Path, tmp_path: Path) -> None:
    sent = {"train.py", "pkg/a.py", "data/big.bin", "data/keep.txt", "notes.md"}
    assert names(folder, tmp_path) == sent


def test_ignore_file_follows_git_rules(folder: Path, tmp_path: Path) -> None:
    (folder / ".gitignore").write_text("*.md\n/data/*\n!/data/keep.txt\n")
    assert names(folder, tmp_path) == {"train.py", "pkg/a.py", "data/keep.txt", ".gitignore"}
    (folder / ".trainhallignore").write_text("pkg/\n")
    assert names(folder, tmp_path) == {"train.py", "data/big.bin", "data/keep.txt", "notes.md",
                                       ".gitignore", ".trainhallignore"}  # fmt: skip


def test_list_of_packages_must_be_sent(folder: Path) -> None:
    packed = code.packed(folder)
    packed.check_environment("requirements", "train.py")
    for field, path, why in (
        (
            "requirements",
            "trian.py",
            "environment.requirements: trian.py is not in .*mean train.py",
        ),
        ("requirements", "einops", r"for a package write \[einops\]"),
        ("project", ".", "environment.project: pyproject.toml is not in"),
    ):
        with pytest.raises(UsageError, match=why):
            packed.check_environment(field, path)


def test_script_must_be_in_the_archive(folder: Path) -> None:
    (folder / ".gitignore").write_text("/notes.md\n")
    (folder / "linked").symlink_to("pkg")
    packed = code.packed(folder)
    good = [
        {"path": "train.py"}, {"path": "pkg/a.py", "working_dir": "pkg"}, {"path": "./linked/a.py"},
        {"module": "anything", "working_dir": "."}, {"path": "train.py", "working_dir": "/tmp"},
        {"path": "/usr/lib/lab/train.py"},
    ]  # fmt: skip
    for script in good:
        packed.check(ScriptSpec.model_validate(script))
    bad = [
        ({"path": "trian.py"}, f"script.path: trian.py is not in {folder}.*mean train.py"),
        ({"path": "a.py"}, "script.path: a.py is not in .*did you mean pkg/a.py"),
        ({"path": "notes.md"}, r"script.path: notes.md is in .*\.gitignore excludes it"),
        ({"path": "train.py", "working_dir": "src"}, "script.working_dir: src is not in"),
        ({"path": "pkg"}, "script.path: pkg is a folder"),
    ]
    for script, why in bad:
        with pytest.raises(UsageError, match=why):
            packed.check(ScriptSpec.model_validate(script))


OWN_TASKS = """\
from lab import *
if True:
    class Digits:
        class Params: ...
"""


def test_task_must_be_in_its_module(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "pkg" / "__init__.py").write_text("from lab import Letters as Words\n")
    (folder / "pkg" / "tasks.py").write_text(OWN_TASKS.removeprefix("from lab import *\n"))
    (folder / "starred.py").write_text(OWN_TASKS)
    (folder / "lazy.py").write_text("def __getattr__(name): ...\n")
    (folder / "newer.py").write_text("class Digits:\n    a b\n")
    packed = code.packed(folder)
    for name in ("pkg:Words", "pkg.tasks:Digits", "starred:Digitz", "lazy:Anything"):
        packed.check_task(name)
    assert not capsys.readouterr().err
    for name, why in (
        ("pkg.tasks:Digitz", r"task.name: .*tasks\.py has no Digitz; did you mean Digits\?"),
        ("pkg.tasks:Params", r"tasks\.py has no Params$"),
        ("pkg:Letters", r"__init__\.py has no Letters"),
    ):
        with pytest.raises(UsageError, match=why):
            packed.check_task(name)
    # Other modules may be installed on the hosts, whose Python may be a newer one too.
    for name, note in (
        ("pkg.task:Digits", "`code` has no module pkg.task; did you mean pkg.tasks? Every node"),
        ("installed:Digits", "no module installed. Every node"),
        ("newer:Digits", "newer.py, line 2)"),
    ):  # fmt: skip
        packed.check_task(name)
        assert note in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        "for n in (1, 2):\n    globals()[f'Digits{n}'] = type(f'Digits{n}', (), {})\n",
        "def make():\n    global Digits1\n    class Digits1: ...\nmake()\n",
        "import sys\nsetattr(sys.modules[__name__], 'Digits' + '1', object)\n",
        "import sys\nsys.modules[__name__].Digits1 = object\n",
        "exec('class Digits1: ...')\n",
        "[Digits1 := object for _ in range(1)]\n",
    ],
    ids=["globals", "global", "setattr", "modules", "exec", "walrus"],
)
def test_dynamically_defined_task_is_accepted(folder: Path, text: str) -> None:
    (folder / "dynamic.py").write_text(text)
    code.packed(folder).check_task("dynamic:Digits1")


def test_task_is_found_beside_similar_files(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "run").write_text("#!/bin/sh\n")
    (folder / "run.py").write_text("class Digits: ...\n")
    (folder / "linked").symlink_to("pkg")
    (folder / "pkg" / "tasks.py").write_text("class Digits: ...\n")
    packed = code.packed(folder)
    packed.check_task("run:Digits")
    packed.check_task("linked.tasks:Digits")
    assert not capsys.readouterr().err
    with pytest.raises(UsageError, match=r"run\.py has no Digitz"):
        packed.check_task("run:Digitz")


@pytest.mark.parametrize("text", ["-" * 100_000 + "1", "+".join("1" * 30_000)], ids=["-", "+"])
def test_deeply_nested_module_is_accepted(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (folder / "deep.py").write_text(f"class Digits: ...\nx = {text}\n")
    code.packed(folder).check_task("deep:Digits")
    printed = capsys.readouterr().err
    # Not all of these errors have words of their own.
    assert re.search(r"Note: task.name: Python 3.* cannot read deep.py: \w", printed)


def test_too_much_names_the_largest_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "MAX_ARCHIVE_BYTES", 3 * 1024 * 1024)
    (folder / "data" / "big.bin").write_bytes(bytes(4 * 1024 * 1024))
    with pytest.raises(UsageError) as caught:
        code.packed(folder)
    assert "at most 3 MiB can be uploaded" in caught.value.message
    assert ".trainhallignore" in caught.value.message
    assert caught.value.details[0] == "4.0 MiB  data/big.bin"
    assert not any(line.startswith("0.0") for line in caught.value.details)
    (folder / ".gitignore").write_text("*.log\n")
    with pytest.raises(UsageError, match=r"or in a new \.trainhallignore, which replaces"):
        code.packed(folder)
    (folder / ".trainhallignore").touch()
    with pytest.raises(UsageError, match=r"not needed in \S+/\.trainhallignore\. The largest"):
        code.packed(folder)
    monkeypatch.setattr(code, "MAX_FILES", 2)
    with pytest.raises(UsageError, match="at most 2 can be uploaded"):
        code.packed(folder)


def test_unsendable_file_is_named(folder: Path, tmp_path: Path) -> None:
    def refused(why: str, what: Path = folder) -> None:
        with pytest.raises(UsageError, match=why):
            code.packed(what)

    refused("code: there is no .*gone", tmp_path / "gone")
    refused("is not a folder", folder / "train.py")
    (tmp_path / "empty").mkdir()
    refused("has no file to upload", tmp_path / "empty")
    os.mkfifo(folder / "pipe")
    refused("pipe is a device, a pipe or a socket; change it, or exclude it in .*ignore")
    (folder / "pipe").unlink()
    (folder / "out").symlink_to("/etc")
    refused("out is a link that may lead out of the folder, to '/etc'")
    (folder / ".gitignore").write_text("*.md\n!\n")
    refused(r"\.gitignore: .*'!'; correct or remove the line")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file_is_named(folder: Path) -> None:
    (folder / "notes.md").chmod(0)
    with pytest.raises(UsageError, match=r"notes\.md cannot be read: Permission denied"):
        code.packed(folder)


def test_env_files_are_sent_when_asked_for(folder: Path, tmp_path: Path) -> None:
    for name in (".env", "pkg/.env.local", ".envrc", ".env.example", "env.py"):
        (folder / name).write_text(name)
    left = (".env", ".envrc", "pkg/.env.local")
    packed = code.packed(folder)
    assert packed.left_out == left
    assert {".env.example", "env.py"} <= packed.names
    assert packed.names.isdisjoint(left)
    assert set(left) < code.packed(folder, include_env=True).names
    (folder / ".trainhallignore").write_text("*.md\n!.env\n")
    assert code.packed(folder).left_out == (".envrc", "pkg/.env.local")
    assert ".env" in names(folder, tmp_path)
