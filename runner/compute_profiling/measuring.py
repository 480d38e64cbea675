"""Measure a profiling task on a device, and make the profile from it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

import torch

from wanbed.ground.errors import MissingError
from wanbed.runner.compute_profiling.device_at_hand import ClockSampler, DeviceAtHand
from wanbed.runner.compute_profiling.task import PromptsTask, StagesTask, stage_name
from wanbed.runner.runs.environment import library_versions
from wanbed.workloads.bubbletea.profile_files import MeasuredChunk, MeasuredLayers, MeasuredPrefill, MeasuredPrompt
from wanbed.workloads.compute.computed_stage import ComputedStage
from wanbed.workloads.compute.device.torch_device import TorchDevice, choose_kernels, create_device
from wanbed.workloads.compute.device_settings import TrainingDevice
from wanbed.workloads.compute.torch_work import TorchWork
from wanbed.workloads.gpt.gpt_stage import DTYPES
from wanbed.workloads.gpt.learning_config import LearningConfig
from wanbed.workloads.inference.inference_stage import InferenceStage
from wanbed.workloads.profiles.compute_profile import (
    Ceiling,
    DeviceState,
    MeasuredConditions,
    MeasuredProfile,
    MeasuredTime,
    ProfileSource,
    ceiling_of,
    clocks_of,
    measured_time,
)
from wanbed.workloads.profiles.device_measurements import measure_chunk, measure_product, measure_stage
from wanbed.workloads.profiles.model_parts import POSITIONS, StageToMeasure, model_times
from wanbed.workloads.profiles.repeats import Pace

Log = Callable[[str], None]
Value = TypeVar("Value")

_VERSIONS = ("python", "wanbed", "torch", "nvidia-ml-py")
_SEED = 0
_LEARNING_RATE = 3e-4


class Measurement:
    """Measure one device at one pace. ``log`` gets a line when each measurement begins, and lines on its progress.

    ``threads`` is the number of torch's threads on a CPU. With ``deterministic`` torch uses only kernels that give the
    same bits in every run. Raise MissingError if torch does not see the GPU.
    """

    def __init__(
        self, at_hand: DeviceAtHand, pace: Pace, log: Log, *, threads: int = 1, deterministic: bool = False
    ) -> None:
        if at_hand.kind == "cuda" and not torch.cuda.is_available():
            raise MissingError(
                f"{at_hand.name} is there, and torch {torch.__version__} does not see it: pip install a torch that is "
                "built for CUDA"
            )
        torch.set_num_threads(threads)
        choose_kernels(deterministic=deterministic)
        self._at_hand = at_hand
        self._sampler = ClockSampler(at_hand.state, at_hand.state_interval_s)
        self._during: list[DeviceState] = []
        self._pace = replace(pace, watched=self._sampler.sampling)
        self._threads = threads
        self._deterministic = deterministic
        self._log = log
        self._device: TorchDevice = create_device(at_hand.kind)

    def stages(self, task: StagesTask) -> MeasuredProfile:
        """Measure the compute profile of the task's models. Raise MissingError if memory runs out."""
        ceiling, before = self._begin(task.product_sizes, task.precision)
        models = []
        for model in task.models:
            stages = []
            for stage in model.stages:
                done = self._begun(stage_name(model.name, stage), 2 * self._pace.repeats)
                repeats_ns = self._stage(stage, task.precision, done)
                stages.append(stage.measured(repeats_ns, self._clock_hz()))
            models.append(model_times(model.config, stages))
        names = " and ".join(model.name for model in task.models)
        return MeasuredProfile(
            title=f"{names} on {self._at_hand.name} in {task.precision}, measured",
            basis="measured",
            device=self._at_hand.name,
            precision=task.precision,
            source=self._source("embedding, layer and head, from a first, a middle and a last stage"),
            models=tuple(models),
            conditions=self._conditions(ceiling, before),
        )

    def prompts(self, task: PromptsTask) -> MeasuredPrefill:
        """Measure the prefill profile of the task's prompts. Raise MissingError if memory runs out."""
        ceiling, before = self._begin(task.product_sizes, task.precision)
        model = task.model
        self._log(f"{model.name}: making the weights of {len(task.layers)} layers")
        stage = _enough_memory(
            lambda: InferenceStage(model, task.layers, seed=_SEED, device=self._device, precision=task.precision)
        )
        prompts, chunks = [], []
        for tokens in task.prompts:
            time = self._chunk(stage, f"{model.name}, a prompt of {tokens} tokens", tokens, 0)
            prompts.append(MeasuredPrompt(tokens=tokens, time_ns=time.median_ns, measured=time))
        for tokens, prior_tokens in task.chunks:
            what = f"{model.name}, a chunk of {tokens} tokens after {prior_tokens}"
            time = self._chunk(stage, what, tokens, prior_tokens)
            chunks.append(
                MeasuredChunk(tokens=tokens, prior_tokens=prior_tokens, time_ns=time.median_ns, measured=time)
            )
        return MeasuredPrefill(
            title=f"{model.name} on {self._at_hand.name} in {task.precision}, measured",
            basis="measured",
            device=self._at_hand.name,
            precision=task.precision,
            source=self._source("prompts, and chunks after prior tokens"),
            model=MeasuredLayers(
                layers=len(task.layers),
                hidden=model.hidden,
                heads=model.heads,
                kv_heads=model.kv_heads,
                head_dim=model.head_dim,
                feed_forward=model.feed_forward,
            ),
            prompts=tuple(prompts),
            chunks=tuple(chunks),
            conditions=self._conditions(ceiling, before),
        )

    def _stage(self, stage: StageToMeasure, precision: str, progress: Callable[[], None]) -> dict[str, tuple[int, ...]]:
        work = TorchWork(
            ComputedStage(len(POSITIONS), stage.stage, pipelines=1, pipeline=0, microbatches=1),
            LearningConfig(stage.config, _LEARNING_RATE, precision, _SEED),
            TrainingDevice(self._at_hand.kind, self._threads, deterministic=self._deterministic),
            recompute=True,
        )
        return _enough_memory(lambda: dict(measure_stage(work, self._pace, progress)))

    def _chunk(self, stage: InferenceStage, what: str, tokens: int, prior_tokens: int) -> MeasuredTime:
        done = self._begun(what, self._pace.repeats)
        repeats_ns = _enough_memory(lambda: measure_chunk(stage, tokens, prior_tokens, self._pace, done))
        return measured_time(repeats_ns, self._clock_hz())

    def _clock_hz(self) -> int | None:
        """Return the median clock since the last figure. Keep its samples for the conditions of all figures."""
        samples = self._sampler.take()
        self._during += samples
        return clocks_of(samples).median_hz

    def _begin(self, sizes: Sequence[int], precision: str) -> tuple[Ceiling, DeviceState]:
        """Measure the ceiling. Return it, and the state of the device, which is warm after that."""
        ceilings = []
        for size in sizes:
            self._log(f"{self._at_hand.name}: the product of {size} x {size} matrices in {precision}")
            product = measure_product(self._device, DTYPES[precision], size, self._pace)
            ceilings.append(ceiling_of(size, product.repeats_ns, clocks_of(self._sampler.take())))
        return max(ceilings, key=lambda ceiling: ceiling.flops_per_s), self._at_hand.state()

    def _conditions(self, ceiling: Ceiling, before: DeviceState) -> MeasuredConditions:
        versions = {name: version for name, version in library_versions().items() if name in _VERSIONS}
        return MeasuredConditions(
            measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
            driver=self._at_hand.driver,
            versions={**versions, "torch": torch.__version__, "cuda": torch.version.cuda},
            threads=self._threads if self._at_hand.kind == "cpu" else None,
            deterministic=self._deterministic,
            ceiling=ceiling,
            before=before,
            during=clocks_of(self._during),
            after=self._at_hand.state(),
        )

    def _source(self, figures: str) -> tuple[ProfileSource, ...]:
        return (ProfileSource(figures=figures, origin="measured by wanbed profile, as conditions say"),)

    def _begun(self, what: str, repeats: int) -> Callable[[], None]:
        """Log the start of a measurement. Return a function to call after each of its repeats."""
        self._log(f"{what}: {repeats} repeats")
        done = 0

        def repeat_done() -> None:
            nonlocal done
            done += 1
            if done % self._pace.repeats == 0 and done < repeats:
                self._log(f"{what}: {done} of {repeats} repeats done")

        return repeat_done


def _enough_memory(work: Callable[[], Value]) -> Value:
    """Return what ``work`` returns. Raise MissingError if memory runs out, because the estimate was too low."""
    try:
        return work()
    except torch.OutOfMemoryError:
        reason = "the GPU's memory ran out"
    except RuntimeError as fault:
        # The CPU allocator raises a plain RuntimeError.
        if "not enough memory" not in str(fault):
            raise
        reason = "the machine's memory ran out"
    raise MissingError(f"memory: {reason}: give fewer --layers, or free some")
