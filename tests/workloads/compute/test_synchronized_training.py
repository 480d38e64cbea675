"""Replicas of a stage in one process, synchronised by hand, against torch's own optimizers."""

from dataclasses import replace
from statistics import mean

import pytest
import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from tests.support.workloads.one_thread import one_thread
from tests.support.workloads.reference_local_updates import train_tiny_replicas
from tests.support.workloads.torch_configs import LEARNING_RATE, MICROBATCHES, SEED, TINY
from wanbed.workloads.compute.computed_stage import ComputedStage
from wanbed.workloads.compute.device_settings import TrainingDevice
from wanbed.workloads.compute.torch_compute import TorchCompute
from wanbed.workloads.compute.torch_work import TorchWork
from wanbed.workloads.gpt.gpt_stage import build_stage, language_loss
from wanbed.workloads.gpt.learning_config import LearningConfig
from wanbed.workloads.gpt.tokens import TokenSource
from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.synchronization.outer_optimizer import OuterSteps
from wanbed.workloads.synchronization.synchronization import Synchronization, WireFormat

_one_thread = pytest.fixture(autouse=True, scope="module")(one_thread)

REPLICAS, ITERATIONS = 3, 5
EVERY_STEP = Synchronization(1, outer_learning_rate=1.0, outer_momentum=0.0)


def replicas_of(synchronization: Synchronization) -> list[TorchCompute]:
    works = [
        TorchWork(
            ComputedStage(stages=1, stage=0, pipelines=REPLICAS, pipeline=replica, microbatches=MICROBATCHES),
            LearningConfig(TINY, LEARNING_RATE, "fp32", SEED),
            TrainingDevice("cpu"),
        )
        for replica in range(REPLICAS)
    ]
    return [TorchCompute(replace(work, synchronization=synchronization), lambda _: None) for work in works]


def steps_of(replica: TorchCompute) -> OuterSteps:
    assert replica.synchronized is not None
    return replica.synchronized


def train(synchronization: Synchronization) -> tuple[list[float], list[Tensor]]:
    """Return the loss of each iteration, and the first replica's parameters after it."""
    replicas, losses, parameters = replicas_of(synchronization), list[float](), list[Tensor]()
    for iteration in range(ITERATIONS):
        for each in replicas:
            each.begin(iteration)
            for microbatch in range(MICROBATCHES):
                each.perform(Action(ActionKind.FORWARD, microbatch))
                each.perform(Action(ActionKind.BACKWARD, microbatch))
            assert each.gradients() is None
            each.update()
        losses.append(mean(each.loss() or 0.0 for each in replicas))
        begun, applied = synchronization.fragment_begun(iteration), synchronization.fragment_applied(iteration)
        if begun is not None:
            sum_up(replicas, begun)
        if applied is not None and iteration >= synchronization.delay:
            for each in replicas:
                steps_of(each).apply(applied, REPLICAS)
        parameters.append(replicas[0].parameters.weights.clone())
    return losses, parameters


def sum_up(replicas: list[TorchCompute], fragment: int) -> None:
    for each in replicas:
        steps_of(each).encode(fragment)
    total, *others = (steps_of(each).encoded(fragment) for each in replicas)
    for other in others:
        steps_of(replicas[0]).add_encoded(total, other)
    for other in others:
        other[:] = total


@pytest.mark.parametrize(
    "synchronization",
    [EVERY_STEP, Synchronization(2), Synchronization(4, fragments=2, delay=1, alpha=0.5)],
    ids=["every step", "DiLoCo", "streaming"],
)
def test_losses_are_those_of_torch_alone(synchronization: Synchronization) -> None:
    losses, _ = train(synchronization)
    assert losses == pytest.approx(train_tiny_replicas(synchronization, REPLICAS, ITERATIONS), rel=1e-6)


def test_synchronising_every_step_is_data_parallelism_with_averaged_updates() -> None:
    """Step for step, each from the same parameters: AdamW divides small gradients by themselves, and so what one step
    rounds otherwise grows in the steps after it."""
    _, found = train(EVERY_STEP)
    models = [build_stage(TINY, 0, 1, SEED, torch.float32) for _ in range(REPLICAS)]
    optimizers = [torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE) for model in models]
    tokens = TokenSource(TINY, SEED)
    for iteration, parameters in enumerate(found):
        for replica, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            optimizer.zero_grad()
            for microbatch in range(MICROBATCHES):
                inputs, targets = tokens.batch(iteration, replica, microbatch)
                (language_loss(model(inputs), targets) / MICROBATCHES).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        average = torch.stack([parameters_to_vector(model.parameters()).detach() for model in models]).mean(dim=0)
        for model in models:
            vector_to_parameters(parameters.clone(), model.parameters())
        assert float((parameters - average).abs().max()) <= 1e-6


def test_one_fragment_at_once_without_delay_is_diloco() -> None:
    whole, streamed = train(Synchronization(2)), train(Synchronization(2, fragments=1, delay=0, alpha=0.0))
    assert whole[0] == streamed[0]
    assert all(torch.equal(one, other) for one, other in zip(whole[1], streamed[1], strict=True))


def test_a_smaller_wire_format_learns_nearly_the_same() -> None:
    (exact, _), (encoded, _) = train(Synchronization(2)), train(Synchronization(2, wire=WireFormat.INT8))
    assert encoded == pytest.approx(exact, rel=1e-2)
    assert encoded != exact
