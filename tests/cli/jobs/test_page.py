"""What `trainhall show` prints of where a job comes from and what it ran with."""

from typing import Any

from trainhall.cli.jobs.page import (
    command_line,
    diff_text,
    environment,
    packages_table,
    repository,
)

FOUND: dict[str, Any] = {
    "attempt": 2,
    "python": "3.12.3",
    "os": "Linux",
    "cuda": None,
    "driver": None,
    "host": "gpu-07",
    "packages": {"numpy": "2.3.3", "torch": "2.12.0+cpu"},
}


def test_environment_is_one_line() -> None:
    assert environment(FOUND) == "Python 3.12.3, torch 2.12.0+cpu, 2 packages, Linux, on gpu-07"
    found = FOUND | {"cuda": "12.6", "driver": "550.54", "packages": {}, "host": None}
    assert environment(found) == "Python 3.12.3, CUDA 12.6, driver 550.54, 0 packages, Linux"
    assert environment(FOUND | {"attempt": None}) is None


def test_packages_are_listed_with_versions() -> None:
    assert packages_table(FOUND).splitlines()[-1].split() == ["torch", "2.12.0+cpu"]
    assert packages_table(FOUND | {"packages": {}}) == "No packages reported."


GIT: dict[str, Any] = {
    "commit": "a" * 40,
    "branch": "main",
    "remote": "https://example.org/lab.git",
    "dirty": True,
    "diff": "-a\n+\x1b[31mb\n",
    "diff_truncated": True,
}


def test_repository_and_command_are_one_line() -> None:
    found = {"git": GIT, "command": ["trainhall", "submit", "my job.yaml"]}
    text = "aaaaaaaaaaaa, branch main, with uncommitted changes, https://example.org/lab.git"
    assert repository(found) == text
    assert command_line(found) == "trainhall submit 'my job.yaml'"
    nothing = {"git": None, "command": None}
    assert (repository(nothing), command_line(nothing)) == (None, None)


def test_diff_is_shown_or_explained() -> None:
    lines = diff_text({"git": GIT}).splitlines()
    assert (lines[1].strip(), lines[-1].strip()) == ("-a", "(the rest was left out)")
    assert "\x1b" not in "".join(lines)
    for change, words in (
        ({"dirty": False}, "No uncommitted changes"),
        ({"diff": None}, "may not read"),
        ({"diff": ""}, "new files"),
    ):
        assert words in diff_text({"git": GIT | change})
    assert "no git repository" in diff_text({"git": None})
