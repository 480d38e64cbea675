"""What replicas that train alone are compared with: DiLoCo in one process, of torch's own optimizers alone."""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from tests.support.workloads.torch_configs import LEARNING_RATE, MICROBATCHES, SEED, TINY
from wanbed.workloads.gpt.gpt_stage import build_stage, language_loss
from wanbed.workloads.gpt.tokens import TokenSource
from wanbed.workloads.synchronization.synchronization import Synchronization

Loss = Callable[[nn.Module, int, int], torch.Tensor]
"""The loss of a replica's model in an iteration: model, iteration, replica."""


def train_local_updates(
    models: list[nn.Module],
    loss_of: Loss,
    *,
    iterations: int,
    learning_rate: float,
    sync_every: int,
    fragments: int = 1,
    delay: int = 0,
    alpha: float = 0.0,
    outer_learning_rate: float = 0.7,
    outer_momentum: float = 0.9,
) -> list[float]:
    """Return the mean loss of each iteration over ``models``, which are the replicas, equal at first."""
    inner = [torch.optim.AdamW(model.parameters(), lr=learning_rate) for model in models]
    start = parameters_to_vector(models[0].parameters()).detach().clone()
    cuts = [start.numel() * index // fragments for index in range(fragments + 1)]
    parts = [slice(*bounds) for bounds in pairwise(cuts)]
    shared = [nn.Parameter(start[part].clone()) for part in parts]
    outer = [
        torch.optim.SGD([each], outer_learning_rate, outer_momentum, nesterov=outer_momentum > 0) for each in shared
    ]
    losses, period = [], sync_every // fragments
    for step in range(1, iterations + 1):
        losses.append(0.0)
        for replica, (model, optimizer) in enumerate(zip(models, inner, strict=True)):
            optimizer.zero_grad()
            loss = loss_of(model, step - 1, replica)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses[-1] += loss.item() / len(models)
        turn = ((step + delay) // period - 1) % fragments
        if (step + delay) % period == 0:
            local = torch.stack([parameters_to_vector(model.parameters()).detach()[parts[turn]] for model in models])
            shared[turn].grad = (shared[turn].detach() - local).mean(dim=0)
        if step % period == 0:
            turn = (step // period - 1) % fragments
            outer[turn].step()
            for model in models:
                whole = parameters_to_vector(model.parameters()).detach().clone()
                whole[parts[turn]] = (1 - alpha) * shared[turn].detach() + alpha * whole[parts[turn]]
                vector_to_parameters(whole, model.parameters())
    return losses


def train_tiny_replicas(synchronization: Synchronization, replicas: int, iterations: int) -> list[float]:
    """Return the mean loss of each iteration of the tests' small GPT, whole in each replica."""
    tokens = TokenSource(TINY, SEED)

    def loss(model: nn.Module, iteration: int, replica: int) -> torch.Tensor:
        batches = [tokens.batch(iteration, replica, microbatch) for microbatch in range(MICROBATCHES)]
        return torch.stack([language_loss(model(inputs), targets) for inputs, targets in batches]).mean()

    return train_local_updates(
        [build_stage(TINY, 0, 1, SEED, torch.float32) for _ in range(replicas)],
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
