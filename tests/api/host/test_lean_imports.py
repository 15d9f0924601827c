"""What a coordinator leaves out of its imports, others find."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys
from trainhall.api.host.lean_imports import import_structlog

import_structlog()
import_structlog()
assert "structlog" in sys.modules
assert not [name for name in sys.modules if name.partition(".")[0] in ("rich", "pygments")]

from rich.console import Console
from trainhall.api.logs import configure_logging

configure_logging("info")
"""


@pytest.mark.processes
def test_logs_do_without_rich() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)
