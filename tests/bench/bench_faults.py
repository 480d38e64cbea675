"""What follows when a rank, a host, a gateway or the guest fails at random moments, for its trial and for the others.

``python -m tests.bench.bench_faults [MOMENTS [rank] [host] [gateway] [guest]]``, as root, with the kernel of virtual
time. The moments are drawn from a seed. Ranks, hosts and gateways fail in virtual time, once with ``recovery: none``
and once with ``restart``; the guest is killed on the real clock. What does not follow as it should is told, and the
exit status is 1 then. Twenty moments of each of the three in virtual time take 10 to 15 minutes.
"""

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.faults.killed_guests import killed_guests
from tests.support.faults.random_moments import KINDS, Course, drawn_faults, experiment, moments_of, run_of

MOMENTS = 20


def in_virtual_time(kind: str, moments: int, folder: Path) -> int:
    """Let a kind fail at so many moments, with and without recovery; return after how many something was wrong."""
    wrong = 0
    undisturbed = Course.of(run_of(experiment((), "restart"), folder / "undisturbed"), 0)
    print(f"undisturbed: {undisturbed.duration_ns / 1e9:.3f} s, longest iteration {undisturbed.longest_ns / 1e9:.3f} s")
    faults = drawn_faults(kind, moments, undisturbed.duration_ns // 1_000_000)
    for recovery in ("none", "restart"):
        found = moments_of(run_of(experiment(faults, recovery), folder / recovery), faults, recovery)
        for each in found:
            detected, recovered = (
                "never" if time_s is None else f"{time_s:6.3f} s" for time_s in (each.detected_s, each.recovered_s)
            )
            print(
                f"{kind:<8} {recovery:<8} {each.fault:<17} at {each.at_s:6.3f} s: {each.outcome:<9} known {detected}, "
                f"again {recovered}, {each.iterations_lost} iterations and {each.lost_work_s:.3f} s of work lost"
                f"{''.join(f'  WRONG: {what}' for what in each.wrong)}",
                flush=True,
            )
        wrong += sum(bool(each.wrong) for each in found)
        known_s = [each.detected_s for each in found if each.detected_s is not None]
        print(
            f"{kind}, {recovery}: known after {min(known_s):.3f} to {max(known_s):.3f} s, lost work at most "
            f"{max(each.lost_work_s for each in found):.3f} s, wrong {sum(bool(each.wrong) for each in found)} "
            f"of {len(found)}",
            flush=True,
        )
    return wrong


def on_the_real_clock(moments: int, folder: Path) -> int:
    """Kill the guest at so many moments; return after how many something was wrong."""
    found = []
    for each in killed_guests(moments, folder):
        print(
            f"guest    after {each.after_s:4.1f} s: recorded in {each.recorded_s:4.1f} s, "
            f"clean in {each.clean_s:4.1f} s: {each.reason[:60]}{''.join(f'  WRONG: {what}' for what in each.wrong)}",
            flush=True,
        )
        found.append(each)
    print(
        f"guest: recorded within {max(each.recorded_s for each in found):.1f} s, clean within "
        f"{max(each.clean_s for each in found):.1f} s, wrong {sum(bool(each.wrong) for each in found)} of {len(found)}"
    )
    return sum(bool(each.wrong) for each in found)


def main(moments: int, kinds: list[str]) -> int:
    """Let each kind fail at so many moments; return after how many of all something was wrong."""
    wrong = 0
    for kind in kinds:
        with TemporaryDirectory() as folder:
            act = (
                on_the_real_clock(moments, Path(folder))
                if kind == "guest"
                else in_virtual_time(kind, moments, Path(folder))
            )
            wrong += act
    return wrong


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit(f"{sys.argv[0]}: it builds networks: call it as root")
    count, *named = sys.argv[1:] or [str(MOMENTS)]
    if unknown := {*named} - {*KINDS, "guest"}:
        sys.exit(f"{sys.argv[0]}: {', '.join(sorted(unknown))}: give any of {', '.join((*KINDS, 'guest'))}")
    sys.exit(1 if main(int(count), named or [*KINDS, "guest"]) else 0)
