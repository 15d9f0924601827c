"""Jobs that keep their own books: what their ranks did, written where no fault reaches."""

from collections import defaultdict
from pathlib import Path
from typing import Any

_ONCE = """
import os, sys, time
with open({ledger!r}, "a") as ledger:
    env = os.environ
    entry = [{key!r}, env["TRAINHALL_ATTEMPT"], env["RANK"], str(os.getpid())]
    ledger.write(" ".join(entry) + "\\n")
time.sleep({seconds})
"""

_TELLING = """
import os, random, time
import trainhall as th

here = th.init(join=False)
chance = random.Random(here.rank)
step = 0
with open(os.path.join({folder!r}, f"rank-{{here.rank}}"), "a") as truth:
    while not os.path.exists(os.path.join({folder!r}, "enough")):
        step += 1
        value = chance.random()
        line = f"{{here.attempt}} {{step}} {{value!r}}"
        print(line, flush=True)
        th.report(value=value, step=step)
        truth.write(line + "\\n")
        truth.flush()
        time.sleep({pause})
"""


def stepping(steps: int = 100_000, *, workers: int = 2, pause: float = 0.02, **more: Any) -> Any:
    """A built-in task that saves as it goes; `pause` seconds a step."""
    return {
        "name": "stepping",
        "task": {"name": "synthetic", "params": {"step_seconds": pause, "hidden": [8]}},
        "resources": {"workers": workers, "device": "cpu"},
        "training": {"steps": steps, "global_batch_size": 12},
        "checkpoint": {"every_steps": 20},
        "recovery": {"max_restarts": 1000},
        **more,
    }


def script(folder: Path, name: str, text: str, *, workers: int = 1, **more: Any) -> Any:
    """A job that runs this text."""
    path = folder / f"{name.replace(' ', '-')}.py"
    path.write_text(text)
    return {
        "name": name,
        "script": {"path": str(path)},
        "resources": {"workers": workers, "device": "cpu"},
        **more,
    }


def once(folder: Path, key: str, seconds: float) -> Any:
    """Two ranks that enter themselves in a ledger when they are launched, and end."""
    text = _ONCE.format(ledger=str(ledger_of(folder)), key=key, seconds=seconds)
    return script(folder, f"once {key}", text, workers=2)


def ledger_of(folder: Path) -> Path:
    return folder / "ledger"


def launches(folder: Path) -> dict[str, list[tuple[int, int]]]:
    """(attempt, rank) of every launch in the ledger, by key."""
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    if ledger_of(folder).exists():
        for line in ledger_of(folder).read_text().splitlines():
            key, attempt, rank, _ = line.split()
            found[key].append((int(attempt), int(rank)))
    return found


def telling(folder: Path, *, workers: int = 2, pause: float = 0.01) -> Any:
    """Ranks that report a number and print a line at every step, and write both down, until there
    is `enough`."""
    folder.mkdir(parents=True, exist_ok=True)
    text = _TELLING.format(folder=str(folder), pause=pause)
    return script(folder, "telling", text, workers=workers)


def enough(folder: Path) -> None:
    """Let ranks that tell come to their end."""
    (folder / "enough").touch()


def truth(folder: Path, rank: int) -> list[tuple[int, int, float]]:
    """(attempt, step, value) of all that a rank did."""
    lines = (folder / f"rank-{rank}").read_text().splitlines()
    return [(int(a), int(s), float(v)) for a, s, v in (line.split() for line in lines)]
