"""Replicas that train alone and synchronise seldom, as processes over loopback, against DiLoCo in one process."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from results.records.span_log import Span
from tests.support.workloads.loopback_ranks import Start
from tests.support.workloads.reference_local_updates import train_local_updates
from tests.support.workloads.synchronized_ranks import REPLICAS, train_synchronized
from tests.support.workloads.torch_configs import LEARNING_RATE, MICROBATCHES, SEED, TINY
from workloads.model.gpt_stage import build_stage, language_loss
from workloads.model.tokens import TokenSource
from workloads.synchronization.synchronization import Synchronization
from workloads.synchronization.wire.wire_format import WireFormat

Train = Callable[..., tuple[list[float], dict[int, list[Span]]]]


@pytest.fixture
def train(tmp_path: Path, start: Start) -> Train:
    """``train(synchronization, iterations, stages=1)``: see ``train_synchronized``."""
    return partial(train_synchronized, tmp_path, start)


def reference(synchronization: Synchronization, iterations: int) -> list[float]:
    tokens = TokenSource(TINY, SEED)

    def loss(model: nn.Module, iteration: int, replica: int) -> torch.Tensor:
        batches = [tokens.batch(iteration, replica, microbatch) for microbatch in range(MICROBATCHES)]
        return torch.stack([language_loss(model(inputs), targets) for inputs, targets in batches]).mean()

    return train_local_updates(
        [build_stage(TINY, 0, 1, SEED, torch.float32) for _ in range(REPLICAS)],
        loss,
        iterations=iterations,
        learning_rate=LEARNING_RATE,
        sync_every=synchronization.sync_every,
        fragments=synchronization.fragments,
        delay=synchronization.delay,
        alpha=synchronization.alpha,
        outer_learning_rate=synchronization.outer_learning_rate,
        outer_momentum=synchronization.outer_momentum,
    )


@pytest.mark.parametrize(
    ("synchronization", "stages"),
    [
        (Synchronization(1, outer_learning_rate=1.0, outer_momentum=0.0), 1),
        (Synchronization(2), 1),
        (Synchronization(4, fragments=2, delay=1, alpha=0.5), 1),
        (Synchronization(2, delay=1), 2),
    ],
    ids=["every step", "DiLoCo", "streaming", "pipelines"],
)
def test_replicas_learn_as_in_one_process(train: Train, synchronization: Synchronization, stages: int) -> None:
    iterations = 6
    losses, spans = train(synchronization, iterations, stages)
    assert losses == pytest.approx(reference(synchronization, iterations), rel=1e-6)
    for own in spans.values():
        applied = [span.iteration for span in own if span.kind == "all_reduce"]
        assert applied == [each for each in range(iterations) if synchronization.fragment_applied(each) is not None]


def test_a_delayed_synchronisation_overlaps_with_the_iteration_beside_it(train: Train) -> None:
    _, spans = train(Synchronization(2, delay=1), 4)
    for own in spans.values():
        for each in (span for span in own if span.kind == "all_reduce"):
            beside = [span for span in own if span.iteration == each.iteration and span.kind == "forward"]
            before = [span for span in own if span.iteration == each.iteration - 1 and span.kind == "optimizer"]
            assert max(span.end_ns for span in before) <= each.start_ns
            assert each.start_ns < min(span.end_ns for span in beside)


def test_an_encoded_synchronisation_sends_what_is_known_ahead(train: Train) -> None:
    synchronization = Synchronization(2, wire=WireFormat.INT8)
    losses, spans = train(synchronization, 4)
    parameters = TINY.gradient_bytes(0, 1, "fp32") // 4
    sizes = {span.size_bytes for own in spans.values() for span in own if span.kind == "all_reduce"}
    assert sizes == {WireFormat.INT8.encoded_bytes(parameters)}
    assert losses == pytest.approx(reference(synchronization, 4), rel=1e-2)
