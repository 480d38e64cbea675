"""Try inputs of every kind that commands read, damaged in ways drawn from a seed, and print a row for each kind.

Each input has to end in a clear line or a right result, within 30 s and 1 GiB. Status 1 says that one did not; its
number repeats it.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.reliability.fuzz.attempts import Attempt, attempts
from tests.reliability.fuzz.judgement import Outcome
from tests.reliability.fuzz.kind import Kind
from tests.reliability.fuzz.kinds import KINDS
from tests.reliability.fuzz.page import KindCounts, with_counts


def main(arguments: Sequence[str] | None = None) -> int:
    """Try inputs, print what became of them, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.reliability.fuzz", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="by default all")
    parser.add_argument("--count", type=int, default=30, help="inputs of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--number", type=int, help="only this input of each kind, with what it printed")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave the inputs there")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the rows of these kinds into its table")
    asked = parser.parse_args(arguments)
    kinds = _chosen(asked.kinds)
    numbers = range(asked.count) if asked.number is None else [asked.number]
    counts = []
    for kind in kinds:
        done = []
        for attempt in attempts(kind, asked.seed, numbers, asked.keep):
            done.append(attempt)
            _report(attempt, whole=asked.number is not None)
        counts.append(KindCounts.of(kind.name, done))
        print(counts[-1].line, flush=True)
    if asked.write is not None:
        text = asked.write.read_text(encoding="utf-8")
        asked.write.write_text(with_counts(text, counts, asked.seed), encoding="utf-8")
    return 1 if any(each.faults for each in counts) else 0


def _chosen(names: Sequence[str]) -> list[Kind]:
    known = {kind.name: kind for kind in KINDS}
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"fuzz: no kind {unknown[0]!r}: there are {', '.join(known)}")
    return [known[name] for name in names] or list(KINDS)


def _report(attempt: Attempt, *, whole: bool) -> None:
    if attempt.outcome is Outcome.FAULT:
        print(f"{attempt.repeat}: {'; '.join(attempt.faults)}", flush=True)
    if whole:
        ended = attempt.ended
        print(f"{attempt.outcome}, status {ended.status}\n{ended.output!a}\n{ended.errors!r}")
        if ended.fault is not None:
            raise ended.fault


if __name__ == "__main__":
    sys.exit(main())
