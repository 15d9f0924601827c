"""The packages that a rank reports at its start."""

import json
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from trainhall.training.link.spool import EventSpool
from trainhall.training.process import packages


def reported(path: Path) -> dict[str, Any]:
    (event,) = map(json.loads, path.read_text().splitlines())
    assert event["kind"] == "packages"
    return dict(event["data"])


def test_installed_reads_names_of_folders(tmp_path: Path) -> None:
    names = (
        "Py_Yaml-6.0.dist-info", "torch-2.12.0+cu126.dist-info", "old-1.0-py3.11.egg-info",
        "~orch-2.11.0.dist-info", "zope.interface-7.2.dist-info", "link.egg-info", "torch",
    )  # fmt: skip
    for name in names:
        (tmp_path / "first" / name).mkdir(parents=True)
    (tmp_path / "second" / "torch-1.0.dist-info").mkdir(parents=True)
    folders = [str(tmp_path / name) for name in ("none", "first", "second")]
    assert packages.installed(folders) == {
        "py-yaml": "6.0",
        "torch": "2.12.0+cu126",
        "old": "1.0",
        "zope-interface": "7.2",
    }


def test_report_has_the_packages_of_this_process(tmp_path: Path) -> None:
    packages.report(EventSpool(tmp_path / "events", 0))
    found = reported(tmp_path / "events")
    assert found["packages"]["pydantic"] == metadata.version("pydantic")
    assert found["packages"]["torch"] == metadata.version("torch")
    assert found["python"] == sys.version.split()[0].rstrip("+")
    assert "kernel" in found["os"]


def test_report_of_a_script_follows_its_environment(tmp_path: Path) -> None:
    (tmp_path / "lib" / "mine-1.0.dist-info").mkdir(parents=True)
    (tmp_path / "lib" / "torch").mkdir()
    (tmp_path / "lib" / "torch" / "version.py").write_text("cuda: Optional[str] = '12.6'\n")
    events = EventSpool(tmp_path / "events", 0)
    packages.report_of(events, sys.executable, {"PYTHONPATH": str(tmp_path / "lib")})
    found = reported(tmp_path / "events")
    assert (found["packages"]["mine"], found["cuda"]) == ("1.0", "12.6")


@pytest.mark.processes
def test_report_of_another_program_is_left_out(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    for name, text in (("train", f"touch {ran}"), ("python3", "echo no JSON")):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
        packages.report_of(EventSpool(tmp_path / "events", 0), str(program), {})
    packages.report_of(EventSpool(tmp_path / "events", 0), str(tmp_path / "gone" / "python"), {})
    assert not ran.exists()
    assert not (tmp_path / "events").exists()
