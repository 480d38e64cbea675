"""Train replicas of a small GPT in one process, with the torch back end and the outer optimizer of the ranks.

What is learnt depends on which gradients and parameters are summed when, and on no network. So the replicas take their
turns here, and are summed in memory, as ranks sum them over a ring of their own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import fsum

import torch
from torch.nn.utils import vector_to_parameters

from wanbed.workloads.compute.computed_stage import ComputedStage
from wanbed.workloads.compute.device_settings import TrainingDevice
from wanbed.workloads.compute.torch_compute import TorchCompute
from wanbed.workloads.compute.torch_work import TorchWork
from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.gpt.gpt_stage import build_stage, language_loss
from wanbed.workloads.gpt.learning_config import LearningConfig
from wanbed.workloads.gpt.learnt_text import HeldOut
from wanbed.workloads.gpt.tokens import TokenSource
from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.synchronization.synchronization import Synchronization

MODEL = GptConfig(layers=2, hidden=64, context=128, heads=4, vocabulary=256)

TEXT = "python-topics"

KEPT = HeldOut(0.1, 16)

SEQUENCES = 12


@dataclass(frozen=True)
class TinyTraining:
    """A training of ``replicas``, which share ``SEQUENCES`` of an iteration; None synchronises one replica with nobody.

    Raises ValueError if the sequences cannot be shared out evenly, or several replicas are not synchronised.
    """

    replicas: int
    synchronization: Synchronization | None
    seed: int
    iterations: int
    evaluate_every: int
    learning_rate: float

    def __post_init__(self) -> None:
        if SEQUENCES % self.replicas or (self.replicas > 1 and self.synchronization is None):
            raise ValueError(f"{self}: replicas are to divide {SEQUENCES}, and several are to be synchronised")


def held_out_losses(training: TinyTraining) -> list[tuple[int, float]]:
    """Train, and return the held-out loss, the mean over the replicas, after so many iterations each."""
    torch.set_num_threads(1)
    microbatches = SEQUENCES // training.replicas
    learning = LearningConfig(MODEL, training.learning_rate, "fp32", training.seed, TEXT, KEPT)
    computed = ComputedStage(1, 0, training.replicas, 0, microbatches)
    work = TorchWork(computed, learning, TrainingDevice("cpu"), synchronization=training.synchronization)
    replicas = [
        TorchCompute(replace(work, computed=replace(computed, pipeline=replica)), lambda _: None)
        for replica in range(training.replicas)
    ]
    found = []
    for iteration in range(training.iterations):
        for each in replicas:
            _train_alone(each, iteration, microbatches)
        if training.synchronization is not None:
            _synchronise(replicas, training.synchronization, iteration)
        if (iteration + 1) % training.evaluate_every == 0:
            found.append((iteration + 1, fsum(map(_held_out_loss, replicas)) / len(replicas)))
    return found


def _train_alone(replica: TorchCompute, iteration: int, microbatches: int) -> None:
    replica.begin(iteration)
    for microbatch in range(microbatches):
        replica.perform(Action(ActionKind.FORWARD, microbatch))
        replica.perform(Action(ActionKind.BACKWARD, microbatch))
    replica.gradients()
    replica.update()


def _synchronise(replicas: Sequence[TorchCompute], synchronization: Synchronization, iteration: int) -> None:
    steps = [each.synchronized for each in replicas if each.synchronized is not None]
    begun, applied = synchronization.fragment_begun(iteration), synchronization.fragment_applied(iteration)
    if begun is not None:
        for each in steps:
            each.encode(begun)
        first, *others = steps
        total = first.encoded(begun)
        for other in others:
            first.add_encoded(total, other.encoded(begun))
        for other in others:
            other.encoded(begun)[:] = total
    if applied is not None and iteration >= synchronization.delay:
        for each in steps:
            each.apply(applied, len(steps))


@torch.no_grad()
def _held_out_loss(replica: TorchCompute) -> float:
    model = build_stage(MODEL, 0, 1, 0, torch.float32)
    vector_to_parameters(replica.parameters.weights.clone(), model.parameters())
    source = TokenSource(MODEL, 0, TEXT, KEPT)
    batches = [source.evaluation_batch(number) for number in range(KEPT.sequences)]
    inputs, targets = (torch.cat(part) for part in zip(*batches, strict=True))
    return float(language_loss(model(inputs), targets))
