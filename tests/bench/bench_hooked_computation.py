"""How far the computation that the hook finds in a program differs from what this project's own ranks measure.

The program and the ranks take turns, in runs of their own: what is printed beside the ratio says how far iterations of
one and the same rank differ on this machine, which bounds what the ratio can tell.
"""

from pathlib import Path
from statistics import median, quantiles

from tests.support.workloads.hooked_stages import STAGES, run_own_ranks, run_program

ROUNDS = 3


def test_computation_of_a_program_against_own_ranks(tmp_path: Path) -> None:
    profiled_ns: list[list[int]] = [[] for _ in range(STAGES)]
    timed_ns: list[list[int]] = [[] for _ in range(STAGES)]
    own_ns: list[list[int]] = [[] for _ in range(STAGES)]
    for number in range(ROUNDS):
        for stage, computed in enumerate(run_program(tmp_path / f"program-{number}")):
            profiled_ns[stage].extend(computed.profiled_ns)
            timed_ns[stage].extend(computed.timed_ns)
        own = tmp_path / f"own-{number}"
        own.mkdir()
        for stage, each in enumerate(run_own_ranks(own)):
            own_ns[stage].extend(each)
    for stage in range(STAGES):
        in_one_run = median(
            profiled / timed for profiled, timed in zip(profiled_ns[stage], timed_ns[stage], strict=True)
        )
        lower, middle, upper = quantiles(own_ns[stage], n=4)
        print(
            f"\nstage {stage}: profiled over timed in the same iterations {in_one_run:.3f}; "
            f"over own ranks in runs of their own {median(profiled_ns[stage]) / middle:.3f}; "
            f"half of the own rank's iterations lie within {(upper - lower) / middle:.1%}"
        )
