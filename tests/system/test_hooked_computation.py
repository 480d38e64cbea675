"""A user's program and this project's own ranks compute the same: the hook finds as much computation as they measure.

Both train the same stages of the same model on the same tokens under GPipe, over loopback: the program by torch's own
schedule, profiled by the hook, the ranks by this project's, which time their actions. They take turns. The program
also times its actions itself, in the way of the ranks.
"""

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

import pytest

from results.records.span_log import SpanLogContents, read_span_log
from tests.support.workloads.hooked_programs import PATIENCE_S, run_ranks
from tests.support.workloads.loopback_ranks import ROOT
from tests.support.workloads.torch_configs import LEARNING_RATE, MICROBATCHES, SEED, make_torch_configs
from workloads.model.gpt_config import GptConfig

pytestmark = pytest.mark.measures

MODEL = GptConfig(layers=4, hidden=256, context=256, heads=4, vocabulary=256)
STAGES, ITERATIONS, ROUNDS = 2, 12, 2
WARM_UP = 2
COMPUTED = {"forward", "backward", "optimizer"}
MAX_DIFFERENCE = 0.05
MAX_SPREAD = 0.1

PROGRAM = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import json, time
from contextlib import contextmanager
import torch, torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from workloads.compute.flat_parameters import FlatParameters
from workloads.model.gpt_config import GptConfig
from workloads.model.gpt_stage import build_stage, language_loss
from workloads.model.tokens import TokenSource

timed_ns = []

@contextmanager
def timed():
    begin_ns = time.monotonic_ns()
    yield
    timed_ns[-1] += time.monotonic_ns() - begin_ns

class TimedStage(PipelineStage):
    def forward_one_chunk(self, *arguments, **options):
        with timed():
            return super().forward_one_chunk(*arguments, **options)
    def backward_one_chunk(self, *arguments, **options):
        with timed():
            super().backward_one_chunk(*arguments, **options)

def loss_of(logits, targets):
    with timed():
        return language_loss(logits, targets) / microbatches

torch.set_num_threads(1)
dist.init_process_group("gloo")
stage, stages, microbatches, model = dist.get_rank(), {STAGES}, {MICROBATCHES}, {MODEL}
module = build_stage(model, stage, stages, {SEED}, torch.float32)
parameters = FlatParameters(module, {LEARNING_RATE})
flat = torch.nn.Parameter(parameters.weights)
flat.grad = parameters.gradients
optimizer = torch.optim.AdamW([flat], lr={LEARNING_RATE}, fused=True)
schedule = ScheduleGPipe(
    TimedStage(module, stage, stages, torch.device("cpu")),
    microbatches,
    loss_of,
    scale_grads=False,
)
tokens = TokenSource(model, {SEED}, None)
for iteration in range({ITERATIONS}):
    timed_ns.append(0)
    parameters.gradients.zero_()
    batches = [tokens.batch(iteration, 0, number) for number in range(microbatches)]
    inputs = [torch.cat([each for each, _ in batches])] if stage == 0 else []
    targets = torch.cat([each for _, each in batches]) if stage == stages - 1 else None
    schedule.step(*inputs, target=targets)
    with timed():
        optimizer.step()
print(json.dumps(timed_ns))
dist.destroy_process_group()
"""


def run_own_ranks(folder: Path) -> list[SpanLogContents]:
    plans = make_torch_configs(folder, STAGES, iterations=ITERATIONS, model=MODEL)
    processes = []
    for plan in plans:
        path = folder / f"plan-{plan.rank}.json"
        plan.write(path)
        processes.append(subprocess.Popen([sys.executable, "-m", "workloads.rank", str(path)], cwd=ROOT))
    try:
        assert [process.wait(PATIENCE_S) for process in processes] == [0] * STAGES
    finally:
        for process in processes:
            process.kill()
    return [read_span_log(Path(plan.span_log)) for plan in plans]


def computed_ns(log: SpanLogContents) -> list[int]:
    """The computation of each iteration after the warm-up."""
    totals: dict[int, int] = defaultdict(int)
    for span in log.spans:
        if span.kind in COMPUTED and span.iteration >= WARM_UP:
            totals[span.iteration] += span.end_ns - span.start_ns
    assert sorted(totals) == list(range(WARM_UP, ITERATIONS))
    return [total_ns for _, total_ns in sorted(totals.items())]


class Measured(NamedTuple):
    """The computation of one stage's iterations: as the hook found it, as the program timed it, of the own rank."""

    profiled_ns: list[int]
    timed_ns: list[int]
    own_ns: list[int]


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> list[Measured]:
    measured = [Measured([], [], []) for _ in range(STAGES)]
    for _ in range(ROUNDS):
        folder = tmp_path_factory.mktemp("program")
        programs = run_ranks(folder, PROGRAM, STAGES, iterations=ITERATIONS, profile=ITERATIONS - WARM_UP)
        own_logs = run_own_ranks(tmp_path_factory.mktemp("own"))
        for stage, (program, own_log) in enumerate(zip(programs, own_logs, strict=True)):
            measured[stage].profiled_ns.extend(computed_ns(program.log))
            measured[stage].timed_ns.extend(json.loads(program.output)[WARM_UP:])
            measured[stage].own_ns.extend(computed_ns(own_log))
    return measured


@pytest.mark.parametrize("stage", range(STAGES))
def test_the_hook_finds_as_much_computation_as_the_program_times(stages: list[Measured], stage: int) -> None:
    pairs = zip(stages[stage].profiled_ns, stages[stage].timed_ns, strict=True)
    ratio = median(profiled / timed for profiled, timed in pairs)
    print(f"\nstage {stage}: profiled over timed in the same iterations {ratio:.3f}")
    # Where others take the processor away between two operators, that counts in the program's time alone.
    skip_if_shared(stages[stage])
    assert ratio == pytest.approx(1, abs=MAX_DIFFERENCE)


@pytest.mark.parametrize("stage", range(STAGES))
def test_the_hook_finds_as_much_computation_as_own_ranks_measure(stages: list[Measured], stage: int) -> None:
    own_ns, program_ns = median(stages[stage].own_ns), median(stages[stage].profiled_ns)
    print(
        f"\nstage {stage}: program {program_ns / 1e6:.2f} ms, own rank {own_ns / 1e6:.2f} ms, "
        f"ratio {program_ns / own_ns:.3f}; half of the own rank's iterations lie within {spread_of(stages[stage]):.1%}"
    )
    skip_if_shared(stages[stage])
    assert program_ns / own_ns == pytest.approx(1, abs=MAX_DIFFERENCE)


def spread_of(measured: Measured) -> float:
    """How far the middle half of the own rank's iterations, which are all the same, lie apart."""
    lower, middle, upper = quantiles(measured.own_ns, n=4)
    return (upper - lower) / middle


def skip_if_shared(measured: Measured) -> None:
    if spread_of(measured) > MAX_SPREAD:
        pytest.skip(f"others use this machine: iterations of one and the same rank differ by {spread_of(measured):.0%}")
