"""Counting how often this process validates a job's spec."""

from collections import OrderedDict

import pytest

from trainhall.training.spec import JobSpec, job


def record_validations(monkeypatch: pytest.MonkeyPatch) -> list[JobSpec]:
    """Return a list of the specs that this process validates from now on."""
    found: list[JobSpec] = []
    check = JobSpec._check_paths
    monkeypatch.setattr(job, "_VALIDATED", OrderedDict())

    def noted(spec: JobSpec) -> None:
        found.append(spec)
        check(spec)

    monkeypatch.setattr(JobSpec, "_check_paths", noted)
    return found
