"""Plans of ranks that train a small GPT in torch over loopback."""

from dataclasses import replace
from pathlib import Path

from tests.support.workloads.loopback_ranks import GPIPE, make_configs
from wanbed.workloads.compute.device_settings import TrainingDevice
from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.gpt.learning_config import LearningConfig
from wanbed.workloads.rank_config import RankConfig
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.transport.links_config import BoundariesConfig

TORCH = "wanbed.workloads.compute.backends.torch_backend:TorchBackend"
TINY = GptConfig(layers=4, hidden=64, context=64, heads=4, vocabulary=256)
MICROBATCHES, SEED, LEARNING_RATE = 3, 3, 1e-3


def make_torch_configs(
    folder: Path,
    stages: int,
    pipelines: int = 1,
    *,
    iterations: int = 2,
    precision: str = "fp32",
    model: GptConfig = TINY,
    check_iteration: int | None = None,
) -> list[RankConfig]:
    """As ``make_configs`` does, with a GPT trained under GPipe."""
    shape = PipelineShape(stages, MICROBATCHES)
    plans = make_configs(folder, shape, pipelines, iterations=iterations, schedule=GPIPE)
    size_bytes = model.activation_bytes(precision)

    def sized(boundaries: BoundariesConfig) -> BoundariesConfig:
        both = {name: replace(boundary, transfer_bytes=size_bytes) for name, boundary in boundaries.named}
        return BoundariesConfig(**both, microbatches=boundaries.microbatches)

    return [
        replace(
            plan,
            compute=replace(
                plan.compute,
                backend=TORCH,
                learning=LearningConfig(model, LEARNING_RATE, precision, SEED),
                device=TrainingDevice("cpu", check_iteration=check_iteration),
            ),
            links=replace(plan.links, boundaries=sized(plan.links.boundaries)),
            rendezvous=replace(plan.rendezvous, timeout_ns=60_000_000_000),
        )
        for plan in plans
    ]
