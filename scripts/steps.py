"""Running checks, each to its end, with a summary that can't be missed."""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
PROCESSORS = os.cpu_count() or 1


def positive(text: str) -> int:
    """The type of an argument that counts what is to be done: nothing done would pass as good.

    Raises:
        argparse.ArgumentTypeError: it is no number from 1 on.
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be an integer of at least 1, not {text!r}")
    return int(text)


@dataclass(frozen=True)
class Step:
    """One check: a command, and the folder below the root in which it runs."""

    name: str
    command: Sequence[str]
    folder: str = "."


def python_tests(*options: str, workers: int = PROCESSORS + 2) -> Step:
    """Return a step that runs pytest.

    Args:
        workers: number of processes; many tests wait, so two more than there are processors.
    """
    # A file's tests stay together: they share a wheel, a coordinator, a browser or warm ranks.
    # Files come in our order (tests/support/whole_runs.py); xdist's has those with few long tests
    # last.
    shared = ["-n", str(min(8, workers)), "--dist", "loadfile", "--no-loadscope-reorder"]
    return Step("the Python tests", [sys.executable, "-m", "pytest", "-q", *options, *shared])


def run_all(steps: Sequence[Step], *, at_once: int = 1) -> int:
    """Run every step, also after a failure; the number of those that failed.

    Args:
        at_once: how many run side by side; of more than one, each shows its output at its end.
    """
    failed = []
    with ThreadPoolExecutor(at_once) as pool:
        run = _run if at_once == 1 else _run_quietly
        for step, code in zip(steps, pool.map(run, steps), strict=True):
            if code != 0:
                failed.append(step.name)
    if failed:
        print(f"\n{len(failed)} of {len(steps)} failed: {', '.join(failed)}", file=sys.stderr)
    return len(failed)


def _run(step: Step) -> int:
    print(f"==> {step.name}", flush=True)
    began = time.monotonic()
    code = subprocess.run(list(step.command), cwd=ROOT / step.folder, check=False).returncode
    if code != 0:
        print(f"==> {step.name} FAILED after {time.monotonic() - began:.1f} s", flush=True)
    return code


def _run_quietly(step: Step) -> int:
    began = time.monotonic()
    done = subprocess.run(
        list(step.command), cwd=ROOT / step.folder, check=False, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    result = "passed" if done.returncode == 0 else "FAILED"
    took = time.monotonic() - began
    # In one piece, so that the lines of two steps do not mix.
    print(f"==> {step.name}: {result} after {took:.1f} s\n{done.stdout}", end="", flush=True)
    return done.returncode


def main(description: str, steps: Sequence[Step], *, at_once: int = 1) -> int:
    """Run every step as a program without arguments; returns its exit code."""
    argparse.ArgumentParser(description=description).parse_args()
    return 1 if run_all(steps, at_once=at_once) else 0
