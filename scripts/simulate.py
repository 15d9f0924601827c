"""Run seeds of the simulator on all cores and summarize them.

python scripts/simulate.py --seeds 10000
python scripts/simulate.py --seed 4711      replay one seed and print its log
"""

import argparse
import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from steps import positive

from trainhall.cluster.simulator.checks.invariants import EXERCISED
from trainhall.cluster.simulator.run import Result, run_seed

_SHOWN_FAILURES = 20
_REPORT_SECONDS = 30.0
"""Time between two lines about the progress."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=positive, default=200, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="replay this seed and print its log")
    parser.add_argument("--processes", type=positive, default=os.cpu_count() or 1)
    options = parser.parse_args()
    # Else its processes would run all seeds without it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if options.seed is not None:
        return _replay(options.seed)
    return _run(range(options.first, options.first + options.seeds), options.processes)


def _replay(seed: int) -> int:
    result = run_seed(seed)
    print("\n".join(result.story))
    print(f"seed {seed}: {result.problem or 'every invariant held'} (story {result.digest[:12]})")
    return 1 if result.problem else 0


def _run(seeds: range, processes: int) -> int:
    began = time.monotonic()
    faults: Counter[str] = Counter()
    checks: Counter[str] = Counter()
    exercised: Counter[str] = Counter(dict.fromkeys(EXERCISED, 0))
    failed: list[Result] = []
    report_at = began + _REPORT_SECONDS
    events, virtual, jobs, attempts = 0, 0.0, 0, 0
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        for number, result in enumerate(pool.map(_without_story, seeds, chunksize=10), start=1):
            faults += result.faults
            checks += result.checks
            exercised.update(result.exercised)
            events += result.events
            virtual += result.virtual_seconds
            jobs += result.jobs
            attempts += result.attempts
            if result.problem:
                failed.append(result)
                print(f"seed {result.seed}: {result.problem}", flush=True)
            if time.monotonic() >= report_at:
                report_at += _REPORT_SECONDS
                print(
                    _progress(number, len(seeds), began, len(failed)), file=sys.stderr, flush=True
                )
    print(
        f"{len(seeds)} seeds, {events} events in {virtual / 3600:.1f} virtual hours, {jobs} jobs, "
        f"{attempts} attempts; {time.monotonic() - began:.0f} s on {processes} processes"
    )
    print("faults injected")
    for kind, count in sorted(faults.items()):
        print(f"  {count:>9}  {kind}")
    print("invariants checked")
    for name, count in sorted(checks.items()):
        print(f"  {count:>9}  {name}")
    print("situations in which they were checked")
    for name, count in sorted(exercised.items()):
        print(f"  {count:>9}  {name}")
    if not failed:
        print("every invariant held")
        return 0
    shown = " ".join(str(result.seed) for result in failed[:_SHOWN_FAILURES])
    print(f"{len(failed)} seeds FAILED: {shown}")
    print(f"replay one: .venv/bin/python scripts/simulate.py --seed {failed[0].seed}")
    return 1


def _progress(done: int, total: int, began: float, failed: int) -> str:
    """
    Args:
        began: when (monotonic).
    """
    rate = done / (time.monotonic() - began)
    minutes, seconds = divmod(round((total - done) / rate), 60)
    left = f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"
    return f"{done} of {total} seeds, {failed} failed; {rate:.1f} seeds/s, {left} left"


def _without_story(seed: int) -> Result:
    result = run_seed(seed)
    result.story.clear()
    return result


if __name__ == "__main__":
    sys.exit(main())
