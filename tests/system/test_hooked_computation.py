"""A user's program and this project's own ranks compute the same: the hook finds as much computation as they measure.

Both train the same stages of the same model on the same tokens under GPipe, over loopback: the program by torch's own
schedule, profiled by the hook, the ranks by this project's, which time their actions. They run at the same time, so
that whatever else the machine does slows both alike. The program also times its actions itself.
"""

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pytest

from results.records.span_log import Span, SpanLogContents, read_span_log
from tests.support.workloads.hooked_programs import PATIENCE_S, run_ranks
from tests.support.workloads.loopback_ranks import ROOT
from tests.support.workloads.torch_configs import LEARNING_RATE, MICROBATCHES, SEED, make_torch_configs
from workloads.model.gpt_config import GptConfig
from workloads.rank_config import RankConfig

pytestmark = pytest.mark.measures

MODEL = GptConfig(layers=4, hidden=256, context=256, heads=4, vocabulary=256)
STAGES, ITERATIONS = 2, 60
LEAST_TOGETHER = 10
WARM_UP = 2
COMPUTED = {"forward", "backward", "optimizer"}
MAX_DIFFERENCE = 0.05

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


def start_own_ranks(folder: Path) -> tuple[list[RankConfig], list["subprocess.Popen[bytes]"]]:
    plans = make_torch_configs(folder, STAGES, iterations=ITERATIONS, model=MODEL)
    processes = []
    for plan in plans:
        path = folder / f"plan-{plan.rank}.json"
        plan.write(path)
        processes.append(subprocess.Popen([sys.executable, "-m", "workloads.rank", str(path)], cwd=ROOT))
    return plans, processes


class Computed(NamedTuple):
    """The computation of one iteration, and when it began and ended, on the machine's clock."""

    by_kind: dict[str, int]
    start_ns: int
    end_ns: int


def computed(log: SpanLogContents, epoch_ns: int) -> list[Computed]:
    """The iterations after the warm-up, in order."""
    spans: dict[int, list[Span]] = defaultdict(list)
    for span in log.spans:
        if span.kind in COMPUTED and span.iteration >= WARM_UP:
            spans[span.iteration].append(span)
    iterations = []
    for _, each in sorted(spans.items()):
        by_kind = {
            kind: sum(span.end_ns - span.start_ns for span in each if span.kind == kind) for kind in sorted(COMPUTED)
        }
        start_ns, end_ns = min(span.start_ns for span in each), max(span.end_ns for span in each)
        iterations.append(Computed({**by_kind, "total": sum(by_kind.values())}, epoch_ns + start_ns, epoch_ns + end_ns))
    assert len(iterations) == ITERATIONS - WARM_UP
    return iterations


def test_the_hook_finds_as_much_computation_as_own_ranks_measure(tmp_path: Path) -> None:
    plans, own_ranks = start_own_ranks(tmp_path)
    try:
        programs = run_ranks(tmp_path, PROGRAM, STAGES, iterations=ITERATIONS, profile=ITERATIONS - WARM_UP)
        assert [process.wait(PATIENCE_S) for process in own_ranks] == [0] * STAGES
    finally:
        for process in own_ranks:
            process.kill()
    sides = {
        "program": [computed(each.log, each.epoch_ns) for each in programs],
        "own ranks": [computed(read_span_log(Path(plan.span_log)), plan.epoch_ns) for plan in plans],
    }
    every = [iterations for side in sides.values() for iterations in side]
    begin_ns, end_ns = max(each[0].start_ns for each in every), min(each[-1].end_ns for each in every)
    print()
    ratios = {}
    for stage in range(STAGES):
        timed_ns = json.loads(programs[stage].output)[WARM_UP:]
        profiled = [each.by_kind["total"] for each in sides["program"][stage]]
        ratios["timed", stage] = median(each / timed for each, timed in zip(profiled, timed_ns, strict=True))
        print(f"stage {stage}: profiled over timed in the same iterations {ratios['timed', stage]:.3f}")
        together = {
            name: [each.by_kind for each in side[stage] if begin_ns <= each.start_ns and each.end_ns <= end_ns]
            for name, side in sides.items()
        }
        assert min(map(len, together.values())) >= LEAST_TOGETHER, "the two did not run at the same time"
        for kind in (*sorted(COMPUTED), "total"):
            program, own = (sorted(each[kind] for each in together[name]) for name in ("program", "own ranks"))
            ratios[kind, stage] = median(program) / median(own)
            print(
                f"stage {stage} {kind:9s} program {median(program) / 1e6:7.2f} ms in {len(program)} iterations, own "
                f"ranks {median(own) / 1e6:7.2f} ms in {len(own)} ({own[0] / 1e6:.1f} to {own[-1] / 1e6:.1f}), "
                f"ratio {ratios[kind, stage]:.3f}"
            )
    for stage in range(STAGES):
        assert ratios["timed", stage] == pytest.approx(1, abs=MAX_DIFFERENCE)
        assert ratios["total", stage] == pytest.approx(1, abs=MAX_DIFFERENCE)
