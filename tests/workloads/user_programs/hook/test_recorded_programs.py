"""What the hook records of real torch programs that know nothing of it."""

from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.workloads.hooked_programs import HookedProgram, run_program, run_ranks, spans_of, start_program
from wanbed.results.records.span_log import COLLECTIVE_KINDS, SpanLogContents

ITERATIONS, PROFILED = 5, 2
PARAMETER_BYTES = 2 * 4 * (256 * 256 + 256) + 4 * (256 * 8 + 8)

DATA_PARALLEL = """
import torch, torch.distributed as dist
from torch.nn import Linear, ReLU, Sequential
from torch.nn.parallel import DistributedDataParallel

torch.manual_seed(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
pair = dist.new_group([0, 1])
layers = Sequential(Linear(256, 256), ReLU(), Linear(256, 256), ReLU(), Linear(256, 8))
model = DistributedDataParallel(layers, bucket_cap_mb=0.2)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(7):
    model(torch.randn(64, 256)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    values = torch.ones(1000, dtype=torch.float64)
    works = [dist.all_reduce(values[:size], group=group, async_op=True)
             for group in (pair, dist.group.WORLD) for size in (10, 20, 10)]
    [work.wait() for work in works]
    dist.all_gather([torch.empty(3), torch.empty(3)], torch.ones(3))
    dist.broadcast(values, 0)
    dist.all_to_all_single(torch.empty(8), torch.ones(8))
    dist.reduce(values, 0)
    dist.barrier()
    dist.send(values, 1) if rank == 0 else dist.recv(values, 0)
dist.destroy_process_group()
"""

TRAINING = """
import torch
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step(optimizer=optimizer):
    optimizer.zero_grad()
    model(torch.randn(32, 64)).sum().backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[HookedProgram]:
    folder = tmp_path_factory.mktemp("data-parallel")
    return run_ranks(folder, DATA_PARALLEL, 2, iterations=ITERATIONS, profile=PROFILED)


@pytest.fixture(scope="module")
def data_parallel(ranks: list[HookedProgram]) -> list[SpanLogContents]:
    return [each.log for each in ranks]


@pytest.fixture(params=[0, 1])
def log(request: pytest.FixtureRequest, data_parallel: list[SpanLogContents]) -> SpanLogContents:
    return data_parallel[request.param]


def test_each_iteration_is_recorded_and_nothing_after_the_last(log: SpanLogContents) -> None:
    iterations = spans_of(log, "iteration")
    assert [span.iteration for span in iterations] == list(range(ITERATIONS))
    assert log.complete
    assert {span.iteration for span in log.spans} == set(range(ITERATIONS))


def test_an_iteration_begins_where_the_last_one_ended_but_where_the_profiler_starts(log: SpanLogContents) -> None:
    iterations = spans_of(log, "iteration")
    gaps = [after.start_ns - before.end_ns for before, after in pairwise(iterations)]
    first_profiled = ITERATIONS - PROFILED
    assert gaps.pop(first_profiled - 1) > 0
    assert set(gaps) == {0}


def test_every_iteration_has_its_optimizers_step(log: SpanLogContents) -> None:
    assert {span.iteration for span in spans_of(log, "optimizer")} == set(range(ITERATIONS))


@pytest.mark.parametrize("kind", ["forward", "backward", "optimizer"])
def test_a_profiled_iteration_has_computation_within_it(log: SpanLogContents, kind: str) -> None:
    for iteration in spans_of(log, "iteration")[-PROFILED:]:
        computed = [span for span in spans_of(log, kind) if span.iteration == iteration.iteration]
        assert sum(span.end_ns - span.start_ns for span in computed) > 0
        assert all(iteration.start_ns <= span.start_ns < span.end_ns <= iteration.end_ns for span in computed)


def test_the_device_computes_one_thing_at_a_time(log: SpanLogContents) -> None:
    kinds = {"forward", "backward", "optimizer"}
    computed = sorted((span for span in log.spans if span.kind in kinds), key=lambda span: span.start_ns)
    assert all(before.end_ns <= after.start_ns for before, after in pairwise(computed))


def test_the_gradients_are_summed_with_all_their_bytes(log: SpanLogContents) -> None:
    summed = [span.size_bytes for span in spans_of(log, "all_reduce") if span.iteration == ITERATIONS - 1]
    # Those of 10 and 20 numbers are the program's own, which come before: they follow its optimizer's step.
    own = [80, 160, 80] * 2
    assert summed[: len(own)] == own
    assert sum(summed[len(own) :]) == PARAMETER_BYTES
    assert len(summed) > len(own) + 1


def test_every_collective_has_its_kind_its_bytes_and_its_group(log: SpanLogContents) -> None:
    last = [span for span in log.spans if span.iteration == ITERATIONS - 1]
    assert [
        (span.kind, span.size_bytes, span.tensor)
        for span in last
        if span.kind in {"all_gather", "broadcast", "all_to_all", "collective", "barrier"}
    ] == [
        ("all_gather", 12, "0,1"),
        ("broadcast", 8000, "0,1"),
        ("all_to_all", 32, "0,1"),
        ("collective", 8000, "0,1"),
        ("barrier", 0, "0,1"),
    ]


def test_the_same_collectives_follow_each_other_on_both_ranks(data_parallel: list[SpanLogContents]) -> None:
    collectives = [
        [
            (span.iteration, span.kind, span.tensor, span.size_bytes)
            for span in log.spans
            if span.kind in COLLECTIVE_KINDS and span.iteration >= ITERATIONS - PROFILED
        ]
        for log in data_parallel
    ]
    assert collectives[0] == collectives[1]
    assert len(collectives[0]) > 2 * PROFILED


def test_no_rank_ends_an_all_reduce_before_the_other_begins_it(ranks: list[HookedProgram]) -> None:
    """So the times are those of the same operation, within the errors of the clocks."""
    error_ns = sum(each.log.device.clock_error_ns for each in ranks if each.log.device is not None)
    times = [
        [(span.start_ns + each.epoch_ns, span.end_ns + each.epoch_ns) for span in spans_of(each.log, "all_reduce")]
        for each in ranks
    ]
    assert len(times[0]) == len(times[1]) == PROFILED * 8
    for (start_ns, end_ns), (other_start_ns, other_end_ns) in zip(*times, strict=True):
        assert max(start_ns, other_start_ns) <= min(end_ns, other_end_ns) + error_ns


def test_a_send_and_its_receive_name_both_ranks(data_parallel: list[SpanLogContents]) -> None:
    sent, received = (spans_of(log, kind)[-1] for log, kind in zip(data_parallel, ("send", "receive"), strict=True))
    assert (sent.size_bytes, sent.tensor) == (received.size_bytes, received.tensor) == (8000, "0,1")


def test_the_log_names_the_device(log: SpanLogContents) -> None:
    assert log.device is not None
    assert (log.device.device, log.device.model) == ("cpu", "cpu")
    assert 0 < log.device.clock_error_ns < 50_000_000


SEVERAL = (
    TRAINING
    + """
other = torch.optim.Adam([torch.nn.Parameter(torch.ones(3))])
other.param_groups[0]["params"][0].grad = torch.ones(3)
class Failing(torch.optim.SGD):
    def step(self, closure=None):
        raise RuntimeError("no step")
failing = Failing([torch.nn.Parameter(torch.ones(3))])
for _ in range(4):
    for microbatch in range(3):
        (model(torch.randn(32, 64)).sum() / 3).backward()
    step()
    other.step()
    try:
        failing.step()
    except RuntimeError:
        pass
"""
)


def test_the_first_optimizer_marks_and_another_makes_spans(tmp_path: Path) -> None:
    """With gradients accumulated over three microbatches, and an optimizer whose steps fail."""
    program, _ = run_program(tmp_path, SEVERAL, iterations=4, profile=1)
    assert len(spans_of(program.log, "iteration")) == 4
    steps = [span.iteration for span in spans_of(program.log, "optimizer") if span.iteration < 3]
    assert steps == [0, 1, 1, 2, 2]


WORKERS = (
    TRAINING
    + """
import os
from torch.utils.data import DataLoader
class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, place):
        step()  # A worker that trains, which is none of this program's iterations.
        return torch.ones(1)
for _ in DataLoader(Items(), num_workers=2):
    step()
"""
)


def test_workers_of_a_data_loader_record_nothing(tmp_path: Path) -> None:
    program, errors = run_program(tmp_path, WORKERS, iterations=4, profile=1)
    assert len(spans_of(program.log, "iteration")) == 4
    assert program.log.complete
    assert "wanbed" not in errors
    assert {path.name for path in tmp_path.iterdir()} == {
        "program.py",
        "hook.json",
        "log.spans",
        "log.spans.software.json",
    }


DYING = (
    TRAINING
    + """
import os, sys
for _ in range(2):
    step()
if sys.argv[1] == "killed":
    os.kill(os.getpid(), 9)
raise RuntimeError("lost")
"""
)


# That a log keeps what it has, and is complete only after a good end, test_any_python.py shows without torch.
@pytest.mark.soak
@pytest.mark.parametrize(("end", "status"), [("killed", -9), ("raised", 1)])
def test_a_program_that_dies_keeps_the_iterations_before(tmp_path: Path, end: str, status: int) -> None:
    program = start_program(tmp_path, DYING, end)
    assert program.wait()[0] == status
    assert [span.iteration for span in spans_of(program.log, "iteration")] == [0, 1]
    assert not program.log.complete


@pytest.mark.soak
def test_a_program_that_ends_early_but_well_is_complete(tmp_path: Path) -> None:
    program, _ = run_program(tmp_path, TRAINING + "step(); step()")
    assert [span.kind for span in program.log.spans] == ["iteration", "optimizer"] * 2
    assert program.log.complete
    assert program.log.device is not None
