"""Output of ranks with secrets: no file of the host has a value, and no line is lost."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from support.cluster.agent_process import script

from trainhall.cluster.agent.shim.masked_output import MaskedOutput
from trainhall.training.link.secrets.attempt_secrets import take_secrets, write_secrets
from trainhall.training.link.secrets.masking import Masker
from trainhall.training.link.status import Outcome

TOKEN = "hf_canary1234567"


def test_file_has_all_but_the_value(tmp_path: Path) -> None:
    masked = MaskedOutput(Masker([TOKEN]))
    file = tmp_path / "stdout.log"
    file.write_bytes(b"of an earlier process\n")
    pipe = masked.add(file)
    os.write(pipe, b"one hf_can")
    masked.drain()
    assert file.read_bytes().endswith(b"\none ")
    os.write(pipe, b"ary1234567 two hf_")
    os.close(pipe)
    masked.drain()
    assert masked.pipes == []
    assert file.read_bytes() == b"of an earlier process\none *** two hf_"
    masked.close()


def test_end_passes_on_what_waits(tmp_path: Path) -> None:
    masked = MaskedOutput(Masker([TOKEN]))
    pipe = masked.add(tmp_path / "stdout.log")
    os.write(pipe, b"the end: hf_")
    masked.close()  # though some process still has the other end
    assert (tmp_path / "stdout.log").read_bytes() == b"the end: hf_"
    os.close(pipe)


def test_secrets_are_read_once(tmp_path: Path) -> None:
    path = tmp_path / "secrets.json"
    write_secrets(path, {"HF_TOKEN": TOKEN})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert take_secrets(path) == {"HF_TOKEN": TOKEN}
    assert not path.exists()
    with pytest.raises(FileNotFoundError):
        take_secrets(path)


@pytest.mark.processes
def test_rank_reads_its_secret_and_prints_a_mask(run: Any, tmp_path: Path) -> None:
    text = """
import os, sys
token = os.environ["HF_TOKEN"]
print("length", len(token), "of", os.environ["TRAINHALL_SECRETS"])
sys.stdout.write("token " + token[:5])
sys.stdout.flush()
sys.stdout.write(token[5:] + "\\n")
print("x" * 3_000_000 + token)
raise ValueError("refused: " + token)
"""
    spec = {**script(tmp_path, text), "secrets": ["HF_TOKEN"]}
    one = run(spec, before=lambda folder: write_secrets(folder.secrets, {"HF_TOKEN": TOKEN}))
    status = one.wait()
    assert status.outcome is Outcome.FAILED
    assert status.failure is not None
    assert status.failure.message == "rank 0 ended with exit code 1: ValueError: refused: ***"
    assert status.failure.log_tail.endswith("ValueError: refused: ***\n")
    out = one.folder.stdout(0).read_text()
    assert out == "length 16 of HF_TOKEN\ntoken ***\n" + "x" * 3_000_000 + "***\n"
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or TOKEN.encode() not in path.read_bytes(), path


@pytest.mark.processes
def test_missing_secrets_start_no_rank(run: Any, tmp_path: Path) -> None:
    status = run({**script(tmp_path, "print(1)"), "secrets": ["HF_TOKEN"]}).wait()
    assert status.outcome is Outcome.FAILED
    assert "with the job's secrets, cannot be read" in status.failure.message
    assert not status.ranks
