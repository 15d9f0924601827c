"""What `trainhall show` prints of the packages that a job ran with."""

from typing import Any

from trainhall.cli.jobs.page import environment, packages_table

FOUND: dict[str, Any] = {
    "attempt": 2,
    "python": "3.12.3",
    "os": "Linux",
    "cuda": None,
    "packages": {"numpy": "2.3.3", "torch": "2.12.0+cpu"},
}


def test_environment_is_one_line() -> None:
    assert environment(FOUND) == "Python 3.12.3, torch 2.12.0+cpu, 2 packages, Linux"
    found = FOUND | {"cuda": "12.6", "packages": {}}
    assert environment(found) == "Python 3.12.3, CUDA 12.6, 0 packages, Linux"
    assert environment(FOUND | {"attempt": None}) is None


def test_packages_are_listed_with_versions() -> None:
    assert packages_table(FOUND).splitlines()[-1].split() == ["torch", "2.12.0+cpu"]
    assert packages_table(FOUND | {"packages": {}}) == "No packages reported."
