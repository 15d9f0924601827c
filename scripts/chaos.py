"""Inject real faults into a real cluster of processes, and report what was checked.

python scripts/chaos.py                                   every scenario in full
python scripts/chaos.py --only partition --runs 3 --seed 7
python scripts/chaos.py --list
"""

import argparse
import json
import math
import signal
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from steps import ROOT, positive

sys.path.insert(0, str(ROOT / "tests"))

from chaos.catalogue import SCENARIOS
from chaos.report import Report
from chaos.stage import Stage


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="names of scenarios, or parts, by commas")
    parser.add_argument("--seed", type=int, default=0, help="seed of the faults and their order")
    parser.add_argument("--runs", type=positive, help="how often each fault happens")
    parser.add_argument(
        "--minutes", type=positive, help="limit per scenario: no fault begins later"
    )
    parser.add_argument("--few", action="store_true", help="as often as in the tests")
    parser.add_argument("--list", action="store_true", help="list the scenarios")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the reports to FILE")
    options = parser.parse_args()
    parts = [part.strip() for part in options.only.split(",") if part.strip()]
    chosen = [s for s in SCENARIOS if not parts or any(part in s.name for part in parts)]
    if not chosen:
        names = ", ".join(scenario.name for scenario in SCENARIOS)
        parser.error(f"no scenario matches {options.only!r}; there are {names}")
    if options.list:
        for scenario in chosen:
            print(f"{scenario.name:<22}{scenario.runs:>5} runs  {scenario.about}")
        return 0
    # A terminal that closes ends it as Ctrl-C does: through every `finally`.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    reports: list[Report] = []
    skipped: list[str] = []
    limit = math.inf if options.minutes is None else options.minutes * 60
    try:
        with (
            tempfile.TemporaryDirectory(prefix="chaos-") as folder,
            closing(Stage(Path(folder))) as stage,
        ):
            for scenario in chosen:
                if why := scenario.obstacle():
                    skipped.append(f"{scenario.name}: SKIPPED, {why}")
                    continue
                runs = options.runs or (scenario.few if options.few else scenario.runs)
                print(f"{scenario.name}: {scenario.about}", flush=True)
                reports.append(scenario.run(stage, options.seed, runs, limit_seconds=limit))
                print("\n".join(reports[-1].lines()), flush=True)
    except KeyboardInterrupt:
        print("interrupted; everything that was started has ended", file=sys.stderr)
        return 130
    finally:
        if options.json is not None:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps([r.as_json() for r in reports], indent=2) + "\n")
    return _summary(reports, skipped, options.seed)


def _summary(reports: list[Report], skipped: list[str], seed: int) -> int:
    failed = [report.name for report in reports if report.problem is not None]
    print(f"\n{'scenario':<22}{'faults':>8}{'checks':>8}{'seconds':>9}")
    for report in reports:
        verdict = "ok" if report.problem is None else "FAILED"
        if report.cut is not None:
            verdict += f" ({report.cut})"
        print(
            f"{report.name:<22}{report.injected.total():>8}{report.checked.total():>8}"
            f"{report.seconds:>9.0f}  {verdict}"
        )
    print("\n".join(skipped))
    if failed:
        print(f"FAILED: {', '.join(failed)}; again: make chaos SEED={seed} ONLY='{failed[0]}'")
        return 1
    print(f"{len(reports)} scenarios passed, {len(skipped)} skipped; seed {seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
