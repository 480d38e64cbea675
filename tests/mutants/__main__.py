"""Plant seeded faults, one at a time, and print those that the mirrored tests do not notice: ``make mutants``.

Status 1 says that less than nine in ten are noticed. Nothing is planted in the tree itself.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.trials import Outcome, Planted, complaint_without_fault, copies, drawn, folder_of, judge

ROOT = Path(__file__).parents[2]
CORE = (
    *(f"runner/{package}" for package in ("simulator", "tcp", "planner", "resolve", "bound", "experiment")),
    *(f"workloads/{package}" for package in ("schedules", "prefill", "transport", "synchronization")),
    *("testbed/network", "testbed/kernel/qdiscs", "results/comparison", "results/metrics"),
)
"""Where a fault changes a figure without a word: models, schedules, statistics, and what shapes the links."""
LEAST_CAUGHT = 0.9
AT_ONCE = 2


def modules_of(name: str, root: Path) -> list[Path]:
    """Return a file, or the modules of a folder, relative to the root."""
    path = root / name
    if not path.exists():
        raise SystemExit(f"mutants: {name}: no such file or folder, name some relative to the repository's root")
    found = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return [each.relative_to(root) for each in found]


def outcomes(root: Path, faults: Sequence[Planted]) -> dict[Planted, Outcome]:
    """Judge faults, several at once, and print each as it is done."""
    judged = {}
    with copies(root, AT_ONCE) as idle, ThreadPoolExecutor(AT_ONCE) as pool:
        folders = sorted({folder_of(each, root) for each in faults})
        complaints = pool.map(lambda folder: complaint_without_fault(folder, idle), folders)
        for folder, complaint in zip(folders, complaints, strict=True):
            if complaint:
                raise SystemExit(f"{complaint}\nmutants: {folder}: these tests have to pass without a fault first")
        for planted, outcome in zip(faults, pool.map(lambda each: judge(each, idle), faults), strict=True):
            judged[planted] = outcome
            print(f"{outcome:16}  {planted.module}:{planted.fault.line}  {' -> '.join(planted.lines())}", flush=True)
    return judged


def report(names: Sequence[str], judged: dict[Planted, Outcome]) -> list[str]:
    """Return the table of how many faults were noticed in each file or folder, then those that were not."""
    width = max(len(name) for name in (*names, "all"))
    lines = ["", f"{'':{width}}  drawn  {'  '.join(Outcome)}  noticed"]
    for name in (*names, "all"):
        own = [each for each in judged if name == "all" or each.module.is_relative_to(name)]
        if own:
            counts = Counter(judged[each] for each in own)
            cells = "  ".join(f"{counts[outcome]:>{len(outcome)}}" for outcome in Outcome)
            noticed = 1 - counts[Outcome.SURVIVED] / len(own)
            lines.append(f"{name:{width}}  {len(own):>5}  {cells}  {noticed:>7.0%}")
    for planted, outcome in judged.items():
        if outcome is Outcome.SURVIVED:
            before, after = planted.lines()
            lines += ["", f"survived: {planted.module}:{planted.fault.line}", f"  - {before}", f"  + {after}"]
    return lines


def main(root: Path = ROOT) -> int:
    """Draw faults, plant them, print the report, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("files", nargs="*", default=CORE, help="files or folders, by default the core")
    parser.add_argument("--faults", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    modules = list(dict.fromkeys(module for name in asked.files for module in modules_of(name, root)))
    judged = outcomes(root, drawn(root, modules, asked.faults, asked.seed))
    print("\n".join(report(asked.files, judged)))
    survived = list(judged.values()).count(Outcome.SURVIVED)
    return 0 if survived <= (1 - LEAST_CAUGHT) * len(judged) else 1


if __name__ == "__main__":
    sys.exit(main())
