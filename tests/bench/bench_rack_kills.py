"""How long something is left of a run over a rack whose driver, agent, raylet or rank is killed at random moments.

``python -m tests.bench.bench_rack_kills [MOMENTS [VICTIM...]]``, as root. Machines are played by namespaces. Ten
moments of each of the four take 25 to 45 minutes. A kill after which something has to follow and does not is told, and
the exit status is 1 then.
"""

import os
import sys
import traceback
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.ray.kills import VICTIMS, killing_ground

MOMENTS = 10


def main(moments: int, victims: list[str]) -> int:
    """Kill each victim at so many moments, print a line for each, and return how many assertions failed."""
    failed = 0
    worst: dict[str, float] = {}
    for victim in victims:
        with killing_ground() as ground:
            for moment in range(moments):
                with TemporaryDirectory() as folder:
                    try:
                        killed = ground.kill(victim, moment, Path(folder))
                    except AssertionError as fault:
                        failed += 1
                        traceback.print_exception(fault)
                        print(f"{victim:<8} {moment:2}  FAILED", flush=True)
                        continue
                kept = "no run" if killed.trials_before is None else f"{killed.trials_before} trials"
                print(
                    f"{victim:<8} {moment:2}  {killed.machine}  after {killed.after_s:4.1f} s: clean in "
                    f"{killed.clean_s:4.1f} s, driver ended in {killed.ended_s:4.1f} s with {killed.status}, "
                    f"{kept} kept, resumed  {killed.line}",
                    flush=True,
                )
                worst[victim] = max(worst.get(victim, 0), killed.clean_s)
    print(f"worst until clean: {', '.join(f'{victim} {time_s:.1f} s' for victim, time_s in worst.items())}")
    return failed


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit(f"{sys.argv[0]}: it plays machines by namespaces: call it as root")
    count, *named = sys.argv[1:] or [str(MOMENTS)]
    sys.exit(1 if main(int(count), named or [*VICTIMS]) else 0)
