"""The last lines of a proof: each pass, and all that was skipped, tried twice, cut off or left to the soak."""

from collections.abc import Iterator, Sequence

from tests.proof.record import PassRecord
from tests.proof.skips import CUT_OFF

SOAK = "soak "
"""Beginning of the names of its passes: a test that one of them leaves is another's."""


def summary_lines(passes: Sequence[PassRecord]) -> Iterator[str]:
    """Yield the lines."""
    for each in passes:
        yield f"{each.name}: {each.passed} passed, {len(each.failed)} failed in {each.seconds:.0f} s"
    yield from _listed("failed", [test for each in passes for test in each.failed])
    skipped: dict[str, int] = {}
    for each in passes:
        for reason, tests in each.skipped.items():
            if not reason.startswith(CUT_OFF):
                skipped[reason] = skipped.get(reason, 0) + len(tests)
    yield f"skipped: {sum(skipped.values())}"
    yield from (f"  {count} {reason}" for reason, count in sorted(skipped.items()))
    yield from _listed("tried twice", [test for each in passes for test in each.tried_twice])
    yield from _listed("cut off", [test for each in passes for test in each.cut_off])
    left = sum(each.left_to_the_soak for each in passes if not each.name.startswith(SOAK))
    yield f"left to the soak: {left}"


def _listed(heading: str, tests: Sequence[str]) -> Iterator[str]:
    yield f"{heading}: {len(tests)}"
    yield from (f"  {test}" for test in tests)
