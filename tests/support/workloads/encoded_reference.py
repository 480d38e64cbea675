"""Training by one process that encodes and decodes at the boundaries of stages, written again in plain torch."""

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor

from tests.support.workloads.reference_training import ReferenceTraining
from wanbed.workloads.compute.activation_wire import ActivationWire
from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.gpt.gpt_stage import build_stage, language_loss
from wanbed.workloads.gpt.tokens import TokenSource
from wanbed.workloads.synchronization.synchronization import WireFormat

BLOCK = 1024


def arrives(sent: Tensor, wire: ActivationWire) -> Tensor:
    """What is left of fp32 numbers, whose count is a multiple of 1024, when they arrive."""
    blocks = sent.reshape(-1, BLOCK)
    if wire.kept is not None:
        kept = torch.zeros_like(blocks)
        places = blocks.abs().topk(wire.kept, dim=1).indices
        kept.scatter_(1, places, blocks.gather(1, places).bfloat16().float())
        return kept.view(sent.shape)
    if wire.numbers is WireFormat.BF16:
        return sent.bfloat16().float()
    assert wire.numbers is WireFormat.INT8
    scales = blocks.abs().max(dim=1, keepdim=True).values / 127
    return ((blocks / scales).round() * scales).view(sent.shape)


class _Crossing(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor, there: Callable[[Tensor], Tensor], back: Callable[[Tensor], Tensor]) -> Tensor:
        context.back = back
        return there(x)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return context.back(gradients[0]), None, None


def train_encoded_reference(
    config: GptConfig,
    wire: ActivationWire,
    *,
    parts: int,
    boundaries: Collection[int],
    pipelines: int,
    microbatches: int,
    iterations: int,
    seed: int,
    learning_rate: float,
) -> ReferenceTraining:
    """Train in fp32, each iteration's gradients accumulated sequence by sequence, pipeline after pipeline.

    What crosses from one of the ``parts`` of the model to another over ``boundaries`` is encoded, both ways.
    """
    modules = [build_stage(config, part, parts, seed, torch.float32) for part in range(parts)]
    optimizer = torch.optim.AdamW([each for module in modules for each in module.parameters()], lr=learning_rate)
    tokens = TokenSource(config, seed)
    lost: dict[tuple[object, ...], Tensor] = {}

    def crossing(*position: object) -> Callable[[Tensor], Tensor]:
        def cross(sent: Tensor) -> Tensor:
            whole = sent + lost.get(position, 0) if wire.error_feedback else sent
            arrived = arrives(whole, wire)
            lost[position] = whole - arrived
            return arrived

        return cross

    losses = []
    for iteration in range(iterations):
        optimizer.zero_grad()
        mean_loss = 0.0
        for pipeline in range(pipelines):
            for microbatch in range(microbatches):
                x, targets = tokens.batch(iteration, pipeline, microbatch)
                for part, module in enumerate(modules):
                    x = module(x)
                    if part in boundaries:
                        ways = [crossing(way, part, pipeline, microbatch) for way in ("there", "back")]
                        x = _Crossing.apply(x, *ways)  # type: ignore[no-untyped-call]
                loss = language_loss(x, targets) / (pipelines * microbatches)
                loss.backward()  # type: ignore[no-untyped-call]
                mean_loss += loss.item()
        optimizer.step()
        losses.append(mean_loss)
    gradients = {
        name: parameter.grad.numpy()
        for module in modules
        for name, parameter in module.named_parameters()
        if parameter.grad is not None
    }
    return ReferenceTraining(tuple(losses), gradients)
