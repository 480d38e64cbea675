"""The same stages of the same model trained twice: by a program under the hook, and by this project's own ranks.

Both train on the same tokens under GPipe, over loopback: the program by torch's own schedule, profiled by the hook, the
ranks by this project's, which time their actions. The program also times its actions itself, in the way of the ranks.
"""

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from tests.support.workloads.hooked_programs import PATIENCE_S, run_ranks
from tests.support.workloads.loopback_ranks import ROOT
from tests.support.workloads.torch_configs import LEARNING_RATE, MICROBATCHES, SEED, make_torch_configs
from wanbed.results.records.span_log import SpanLogContents, read_span_log
from wanbed.workloads.gpt.gpt_config import GptConfig

MODEL = GptConfig(layers=4, hidden=256, context=256, heads=4, vocabulary=256)
DIMENSIONS = {name: getattr(MODEL, name) for name in ("layers", "hidden", "context", "heads", "vocabulary")}
STAGES, ITERATIONS = 2, 12
WARM_UP = 2
COMPUTED = {"forward", "backward", "optimizer"}

PROGRAM = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import json, time
from contextlib import contextmanager
import torch, torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from wanbed.workloads.compute.flat_parameters import FlatParameters
from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.gpt.gpt_stage import build_stage, language_loss
from wanbed.workloads.gpt.tokens import TokenSource

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
stage, stages, microbatches, model = dist.get_rank(), {STAGES}, {MICROBATCHES}, GptConfig(**{DIMENSIONS})
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


class ProgramComputation(NamedTuple):
    """The computation of one stage's iterations: as the hook found it, and as the program timed it."""

    profiled_ns: list[int]
    timed_ns: list[int]


def run_program(folder: Path) -> list[ProgramComputation]:
    """Run the program once; return the computation of each of its stages."""
    programs = run_ranks(folder, PROGRAM, STAGES, iterations=ITERATIONS, profile=ITERATIONS - WARM_UP)
    return [ProgramComputation(computed_ns(each.log), json.loads(each.output)[WARM_UP:]) for each in programs]


def run_own_ranks(folder: Path) -> list[list[int]]:
    """Run this project's ranks once; return the computation of each iteration of each stage."""
    plans = make_torch_configs(folder, STAGES, iterations=ITERATIONS, model=MODEL)
    processes = []
    for plan in plans:
        path = folder / f"plan-{plan.rank}.json"
        plan.write(path)
        processes.append(subprocess.Popen([sys.executable, "-m", "wanbed.workloads.rank", str(path)], cwd=ROOT))
    try:
        assert [process.wait(PATIENCE_S) for process in processes] == [0] * STAGES
    finally:
        for process in processes:
            process.kill()
    return [computed_ns(read_span_log(Path(plan.process.span_log))) for plan in plans]


def computed_ns(log: SpanLogContents) -> list[int]:
    """The computation of each iteration after the warm-up."""
    totals: dict[int, int] = defaultdict(int)
    for span in log.spans:
        if span.kind in COMPUTED and span.iteration >= WARM_UP:
            totals[span.iteration] += span.end_ns - span.start_ns
    assert sorted(totals) == list(range(WARM_UP, ITERATIONS))
    return [total_ns for _, total_ns in sorted(totals.items())]
