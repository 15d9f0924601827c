"""Scripts and commands without a spec: where their code is, and what they run."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from trainhall.cli.base.errors import UsageError
from trainhall.cli.spec import specs
from trainhall.cli.spec.code import packed
from trainhall.cli.spec.programs import document_for, is_program


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A folder with scripts and a module, in no repository."""
    (tmp_path / "exp").mkdir()
    for name in ("train.py", "exp/run.sh", "exp/main.py"):
        (tmp_path / name).write_text("")
    return tmp_path.resolve()


@pytest.mark.processes
@pytest.mark.parametrize(
    ("words", "here", "script"),
    [
        (["train.py"], "", {"path": "train.py"}),
        (["train.py", "--lr", "0.1"], "", {"path": "train.py", "args": ["--lr", "0.1"]}),
        (["main.py"], "exp", {"path": "exp/main.py", "working_dir": "exp"}),
        (["python", "train.py", "-x"], "", {"path": "train.py", "args": ["-x"]}),
        (["exp/run.sh"], "", {"path": "exp/run.sh", "interpreter": "bash"}),
        (["zsh", "exp/run.sh"], "", {"path": "exp/run.sh", "interpreter": "zsh"}),
        (["python", "-m", "exp.main", "a"], "", {"module": "exp.main", "args": ["a"]}),
        (["python3", "-m", "main"], "exp", {"module": "main", "working_dir": "exp"}),
    ],
)
def test_program_runs_in_its_repository(
    lab: Path, words: list[str], here: str, script: dict[str, Any]
) -> None:
    subprocess.run(["git", "init", "-q", str(lab)], check=True)
    assert is_program(words)
    document, why = document_for(words, lab / here)
    assert (document["code"], document["script"]) == (str(lab), script)
    assert why == "the git repository"


@pytest.mark.processes
def test_folder_without_repository_is_the_script_s(lab: Path) -> None:
    document, why = document_for(["exp/main.py"], lab)
    assert document == {"name": "main", "code": str(lab / "exp"), "script": {"path": "main.py"}}
    assert why == "the folder of the script"
    assert document_for(["python", "-m", "exp.main"], lab)[0]["code"] == str(lab)


def test_program_in_git_is_not_looked_up_here() -> None:
    code = {"git": "https://git.example/lab", "ref": "v2"}
    spec = specs.load_words(["exp/gone.py", "--lr", "1"], ["code.token=LAB"], code)
    assert spec.git_code is not None
    assert (spec.git_code.ref, spec.git_code.token, spec.name) == ("v2", "LAB", "gone")
    assert spec.script is not None
    assert (spec.script.path, spec.script.args) == ("exp/gone.py", ["--lr", "1"])
    document, packed_code = specs.document_of(spec)
    assert (document["code"]["git"], packed_code) == (code["git"], None)
    module = specs.load_words(["python", "-m", "exp.main"], None, code)
    assert module.script is not None
    assert module.script.module == "exp.main"


def test_git_replaces_the_code_of_a_spec(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("{name: x, code: ., script: {path: train.py}}")
    spec = specs.load_words([str(file)], None, {"git": "https://git.example/lab"})
    assert spec.git_code is not None
    assert spec.git_code.ref == "HEAD"
    with pytest.raises(UsageError, match="clones nothing; clone https://git"):
        specs.folder_in_place(spec, "run")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gone.py"], "there is no script gone.py"),
        (["torchrun", "train.py"], "torchrun is not needed"),
        (["python", "-u", "train.py"], "options of python, such as -u"),
        (["python", "-m"], "options of python, such as -m"),
    ],
)
def test_other_commands_are_refused(lab: Path, words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        document_for(words, lab)


def test_spec_takes_no_arguments() -> None:
    assert not is_program(["job.yaml"])
    assert not is_program(["-"])
    with pytest.raises(UsageError, match="takes no arguments"):
        is_program(["job.yaml", "--lr"])


@pytest.mark.processes
def test_overrides_apply_to_a_script(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lab)
    spec = specs.load_words(["train.py", "--lr", "${lr}"], ["parameters.lr=0.1", "name=mine"])
    assert (spec.name, spec.arguments) == ("mine", ["--lr", "0.1"])


def test_gitignore_of_each_folder_counts(lab: Path) -> None:
    (lab / ".gitignore").write_text("*.sh\n")
    (lab / "exp/.gitignore").write_text("!run.sh\n/main.py\n")
    names = {".gitignore", "train.py", "exp/.gitignore", "exp/run.sh"}
    assert packed(lab).names == names
    (lab / ".trainhallignore").write_text("*.py\n")
    assert packed(lab).names == names - {"train.py"} | {".trainhallignore"}
