"""The hook finds as much computation as the program itself times, in the same iterations."""

from statistics import median

import pytest

from tests.support.workloads.hooked_stages import STAGES, ProgramComputation, run_program

pytestmark = pytest.mark.measures

MAX_DIFFERENCE = 0.1
"""Where others take the processor away between two operators, that counts in the program's time alone."""


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> list[ProgramComputation]:
    return run_program(tmp_path_factory.mktemp("program"))


@pytest.mark.parametrize("stage", range(STAGES))
def test_the_hook_finds_as_much_computation_as_the_program_times(stages: list[ProgramComputation], stage: int) -> None:
    pairs = zip(stages[stage].profiled_ns, stages[stage].timed_ns, strict=True)
    ratio = median(profiled / timed for profiled, timed in pairs)
    print(f"\nstage {stage}: profiled over timed in the same iterations {ratio:.3f}")
    assert ratio == pytest.approx(1, abs=MAX_DIFFERENCE)
