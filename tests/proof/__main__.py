"""Prove the project: ``python -m tests.proof test | pure | soak [PART...] | due``, which are targets of the Makefile.

``soak`` runs the soak, or parts of it, to the end. ``due`` runs the parts that the ledger says are due, until its time
is up. Both add what ran to the ledger, which is committed with the change.
"""

import argparse
import os
import sys
import time
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime

from tests.proof.passes import ALONE, SIDE_BY_SIDE, forget_passes, kept_passes, run_pass
from tests.proof.soak_parts import (
    CUT_OFF,
    LEDGER,
    PARTS,
    PASSED,
    Entry,
    Part,
    add_entry,
    changed_parts,
    due_parts,
    files_of,
    head_revision,
    read_ledger,
)
from tests.proof.summary import SOAK, summary_lines

DUE_S = 10 * 60
"""When the last test of the due parts begins; the longest takes two minutes."""


def prove() -> bool:
    """Run everything that every landing has to pass."""
    forget_passes()
    side_by_side = run_pass("side by side", SIDE_BY_SIDE, "not soak and not measures", ["tests"])
    measured = ["tests/system", "tests/bench"]
    measuring = run_pass("measuring", ALONE, "measures and not soak", measured, second_try=True)
    return side_by_side and measuring


def prove_without_root() -> bool:
    """Run the tests that build no namespaces."""
    forget_passes()
    return run_pass("side by side", SIDE_BY_SIDE, "not soak and not measures", ["tests"], "--ignore=tests/system")


def soak(parts: Sequence[Part], cut_off_at: float | None = None) -> bool:
    """Run parts of the soak, and enter in the ledger what passed or was cut off."""
    os.environ["WANBED_SEARCH"] = "1"
    # The same ledger draws the same examples: what passes before a landing passes in it too.
    options = [f"--hypothesis-seed={zlib.crc32(LEDGER.read_bytes())}"]
    options += [] if cut_off_at is None else [f"--cut-off-at={cut_off_at}"]
    fine = True
    for part in parts:
        if cut_off_at is not None and time.time() > cut_off_at:
            print(f"no time left for part {part.name} of the soak")
            break
        before, tests = len(kept_passes()), files_of(part)
        passed = run_pass(f"{SOAK}{part.name}", SIDE_BY_SIDE, "(soak or hypothesis) and not measures", tests, *options)
        passed &= run_pass(
            f"{SOAK}{part.name}, measuring", ALONE, "soak and measures", tests, *options, second_try=True
        )
        fine &= passed
        if passed:
            outcome = CUT_OFF if any(each.cut_off for each in kept_passes()[before:]) else PASSED
            add_entry(Entry(datetime.now(UTC).date().isoformat(), head_revision(), part.name, outcome))
    return fine


def main() -> int:
    """Run one of the four, print the summary last, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof")
    parser.add_argument("kind", choices=["test", "pure", "soak", "due"])
    parser.add_argument("parts", nargs="*", metavar="PART", choices=[[], *(part.name for part in PARTS)])
    asked = parser.parse_args()
    if asked.kind == "test":
        fine = prove()
    elif asked.kind == "pure":
        fine = prove_without_root()
    elif asked.kind == "soak":
        forget_passes()
        fine = soak([part for part in PARTS if not asked.parts or part.name in asked.parts])
    else:
        entries = read_ledger()
        due = due_parts(entries, changed_parts(entries))
        print(f"soak: {', '.join(part.name for part in due)}, for {DUE_S // 60} minutes", flush=True)
        fine = soak(due, time.time() + DUE_S)
    print("\n".join(["", *summary_lines(kept_passes())]))
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
