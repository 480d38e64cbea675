from dataclasses import replace

import pytest
import torch

from studies.which_training.tiny_training import (
    KEPT,
    MODEL,
    SEQUENCES,
    TEXT,
    TinyTraining,
    held_out_losses,
)
from tests.support.workloads.one_thread import one_thread
from wanbed.workloads.gpt.gpt_stage import build_stage, language_loss
from wanbed.workloads.gpt.tokens import TokenSource
from wanbed.workloads.synchronization.synchronization import Synchronization

_one_thread = pytest.fixture(autouse=True, scope="module")(one_thread)

ALONE = TinyTraining(1, None, 3, 4, 2, 0.001)


def reference_losses(training: TinyTraining) -> list[float]:
    """The held-out losses of one model under torch's AdamW that learns all sequences of each iteration at once."""
    model = build_stage(MODEL, 0, 1, training.seed, torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=training.learning_rate)
    tokens = TokenSource(MODEL, training.seed, TEXT, KEPT)
    evaluated = [tokens.evaluation_batch(number) for number in range(KEPT.sequences)]
    found = []
    for iteration in range(training.iterations):
        batches = [tokens.batch(iteration, 0, microbatch) for microbatch in range(SEQUENCES)]
        inputs, targets = (torch.cat(part) for part in zip(*batches, strict=True))
        optimizer.zero_grad()
        language_loss(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        with torch.no_grad():
            losses = [float(language_loss(model(inputs), targets)) for inputs, targets in evaluated]
        found.append(sum(losses) / len(losses))
    return found[training.evaluate_every - 1 :: training.evaluate_every]


def test_one_replica_learns_what_torch_learns_from_all_sequences_at_once() -> None:
    found = held_out_losses(ALONE)
    assert [iterations for iterations, _ in found] == [2, 4]
    assert [loss for _, loss in found] == pytest.approx(reference_losses(ALONE), rel=1e-5)


def test_replicas_that_synchronise_seldom_learn_something_else() -> None:
    seldom = replace(ALONE, replicas=3, synchronization=Synchronization(2))
    assert held_out_losses(seldom) != held_out_losses(ALONE)


@pytest.mark.parametrize(
    ("replicas", "synchronization"), [(5, Synchronization(2)), (3, None)], ids=["5 of 12", "alone"]
)
def test_replicas_share_sequences_evenly_and_are_synchronised(
    replicas: int, synchronization: Synchronization | None
) -> None:
    with pytest.raises(ValueError, match="replicas"):
        TinyTraining(replicas, synchronization, 0, 4, 2, 0.001)
