"""The SDK outside Trainhall: light, and harmless to any script."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import trainhall
from trainhall.training.spec.parameters import VARIABLE

BEGIN = "import sys\nimport trainhall as th\n"


def run(text: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BEGIN + text],
        capture_output=True, text=True, check=False, cwd=folder, timeout=60,
        env={**{k: v for k, v in os.environ.items() if not k.startswith("TRAINHALL_")}, **env},
    )  # fmt: skip


@pytest.mark.processes
def test_nothing_heavy_is_imported(tmp_path: Path) -> None:
    text = """
assert not {"torch", "pydantic", "fastapi", "numpy"} & set(sys.modules)
th.init(total_steps=3)
th.report(loss=0.5)
th.report({"eval/loss": 1}, step=2)
assert not th.should_stop()
assert th.checkpoint.load() is None and th.checkpoint.step == 0
assert not {"torch", "fastapi", "numpy"} & set(sys.modules)
assert "Trainer" in dir(th) or "Trainer" in th.__all__
"""
    done = run(text, tmp_path)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.stderr.splitlines() == ["step 1  loss 0.5", "step 2  eval/loss 1"]


@pytest.mark.processes
def test_sdk_keeps_a_scripts_exit_code(tmp_path: Path) -> None:
    assert run("th.leave()", tmp_path).returncode == 0
    assert run("th.init()\nsys.exit(3)", tmp_path).returncode == 3
    failed = run("th.init()\nraise ValueError('wrong')", tmp_path)
    assert (failed.returncode, failed.stderr.count("ValueError: wrong")) == (1, 1)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("th.init(total_steps=0)", "total_steps must be an integer above 0, not 0"),
        ("th.init(total_steps='5')", "not '5'"),
        ("th.report(loss='x')", "loss must be a number, not str"),
        ("th.checkpoint.save({}, step=1.5)", "step must be an integer, not 1.5"),
        ("th.nothing", "has no attribute 'nothing'"),
    ],
)
def test_sdk_reports_wrong_use(tmp_path: Path, text: str, why: str) -> None:
    assert why in run(text, tmp_path).stderr.splitlines()[-1]


@pytest.mark.processes
def test_init_takes_numpy_integers(tmp_path: Path) -> None:
    done = run("import numpy\nth.init(total_steps=numpy.int64(3))", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.processes
def test_rank_that_reports_waits_for_no_other(tmp_path: Path) -> None:
    """No process listens at the port: joining would fail, or wait."""
    env = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    text = """
th.report(loss=2)
th.on_resize(print)
assert th.checkpoint.step == 0
assert th.init(total_steps=5, join=False).world_size == 2
assert "torch" not in sys.modules
"""
    done = run(text, tmp_path, **env)
    assert (done.returncode, done.stderr) == (0, "step 1  loss 2\n")


@pytest.mark.processes
def test_fork_cannot_act_for_the_rank(tmp_path: Path) -> None:
    text = """
import os
th.init()
if os.fork():
    os.wait()
    sys.exit()
th.report(loss=1)
for call in (th.should_stop, th.leave, th.checkpoint.load, lambda: th.checkpoint.save({})):
    try:
        call()
    except RuntimeError as error:
        print(error)
"""
    lines = run(text, tmp_path).stdout.splitlines()
    assert len(lines) == 4
    assert all("a process that the script started" in line for line in lines)


@pytest.mark.processes
def test_sdk_ignores_a_broken_attempt_mark(tmp_path: Path) -> None:
    """Left over in a shell: the folder is gone, or there never was one."""
    env = {"TRAINHALL_ATTEMPT_FOLDER": str(tmp_path / "gone"), "TRAINHALL_WRITER": "0-aa",
           "RANK": "0"}  # fmt: skip
    done = run("th.report(loss=2)", tmp_path, **env)
    assert (done.returncode, done.stderr) == (0, "step 1  loss 2\n")


def test_parameters_lie_over_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert trainhall.parameters(lr=1) == {"lr": 1}
    monkeypatch.setenv(VARIABLE, '{"lr": 0.1, "layers": 2}')
    assert trainhall.parameters(lr=1, width=8) == {"lr": 0.1, "width": 8, "layers": 2}


@pytest.mark.parametrize("text", ["", "[]", "1", "{"])
def test_bad_parameters_are_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(ValueError, match="TRAINHALL_PARAMETERS must be a JSON object") as caught:
        trainhall.parameters()
    assert repr(text) in str(caught.value)
