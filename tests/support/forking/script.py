"""A Python script as `python script.py` runs it, in a process with its modules imported."""

import runpy
import sys
from pathlib import Path


def main() -> None:
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
