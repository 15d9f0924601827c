"""Shims on folders of the test."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cluster.shims import shims


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Any]:
    with shims(tmp_path) as start:
        yield start
