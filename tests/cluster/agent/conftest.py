"""Shims on folders of the test."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cluster.shims import WarmRun, shims


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Any]:
    with shims(tmp_path) as start:
        yield start


@pytest.fixture
def run_warm(tmp_path: Path) -> Iterator[Any]:
    """Their scripts begin with torch imported."""
    with shims(tmp_path, WarmRun) as start:
        yield start
