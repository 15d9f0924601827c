"""Running checks one after another, each to its end, with a summary that can't be missed."""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent


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


def run_all(steps: Sequence[Step]) -> int:
    """Run every step, also after a failure; the number of those that failed."""
    failed = []
    for step in steps:
        print(f"==> {step.name}", flush=True)
        began = time.monotonic()
        done = subprocess.run(list(step.command), cwd=ROOT / step.folder, check=False)
        took = time.monotonic() - began
        if done.returncode != 0:
            failed.append(step.name)
            print(f"==> {step.name} FAILED after {took:.1f} s", flush=True)
    if failed:
        print(f"\n{len(failed)} of {len(steps)} failed: {', '.join(failed)}", file=sys.stderr)
    return len(failed)


def main(description: str, steps: Sequence[Step]) -> int:
    """Run every step as a program without arguments; returns its exit code."""
    argparse.ArgumentParser(description=description).parse_args()
    return 1 if run_all(steps) else 0
