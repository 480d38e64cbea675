"""What emulated training is compared with: the whole model, one process, nothing but torch."""

from dataclasses import dataclass

import numpy as np
import torch

from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.gpt.gpt_stage import DTYPES, build_stage, language_loss
from wanbed.workloads.gpt.tokens import TokenSource

Gradients = dict[str, np.ndarray]


@dataclass(frozen=True)
class ReferenceTraining:
    """The mean loss of each iteration, before its update, and the last iteration's gradients by parameter."""

    losses: tuple[float, ...]
    gradients: Gradients


def train_reference(
    config: GptConfig,
    *,
    pipelines: int,
    microbatches: int,
    iterations: int,
    seed: int,
    learning_rate: float,
    precision: str = "fp32",
    text: str | None = None,
) -> ReferenceTraining:
    """Train with each iteration's gradients accumulated sequence by sequence, pipeline after pipeline.

    The batch as a whole would give the same but for rounding, and AdamW enlarges that: where a gradient is next to
    nothing its first steps follow the sign alone. After 5 iterations of 6 sequences at a learning rate of 1e-3, two
    such trainings of gpt-tiny by torch alone were up to 9e-6 apart, as much as the comparisons here may allow.
    """
    model = build_stage(config, 0, 1, seed, DTYPES[precision])
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    tokens = TokenSource(config, seed, text)
    losses = []
    for iteration in range(iterations):
        optimizer.zero_grad()
        mean_loss = 0.0
        for pipeline in range(pipelines):
            for microbatch in range(microbatches):
                inputs, targets = tokens.batch(iteration, pipeline, microbatch)
                loss = language_loss(model(inputs), targets) / (pipelines * microbatches)
                loss.backward()  # type: ignore[no-untyped-call]
                mean_loss += loss.item()
        optimizer.step()
        losses.append(mean_loss)
    gradients = {
        name: parameter.grad.float().numpy()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
    return ReferenceTraining(tuple(losses), gradients)


def relative_error(gradients: Gradients, reference: Gradients) -> float:
    """The largest over parameters of |gradient - reference| / |reference|, Euclidean norms."""
    assert gradients.keys() == reference.keys()
    return max(
        float(np.linalg.norm(gradients[name] - expected) / np.linalg.norm(expected))
        for name, expected in reference.items()
    )
