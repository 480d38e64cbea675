"""Compute profiles, and the times of a model's stages that follow from them.

A compute profile is either measured on a device, part by part of a model, or estimated from the device's data sheet.
Its times are for one microbatch of one sequence, in the profile's precision. A measured one says under which conditions
it was measured, and how far each figure spread.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low, quantiles
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from wanbed.ground.errors import InputError
from wanbed.ground.strict_model import StrictModel
from wanbed.ground.units import MAX_DURATION_NS
from wanbed.workloads.gpt.gpt_config import (
    MAX_CONTEXT_TOKENS,
    MAX_HEADS,
    MAX_HIDDEN,
    MAX_LAYERS,
    MAX_VOCABULARY_TOKENS,
    GptConfig,
    bytes_per_element,
)

_TimeNs = Annotated[int, Field(ge=0, le=MAX_DURATION_NS)]
"""The time of one action in nanoseconds."""

UNSTEADY = 0.03
"""The spread above which texts about a compute profile call a figure unsteady."""


class MeasuredTime(StrictModel):
    """One figure: the ``repeats_ns`` in their order, their median, and their spread.

    The spread is the distance between the quartiles, which contain half of the repeats, divided by the median.
    ``clock_hz`` is the device's median clock while its stage, prompt or chunk was measured: a power cap gives figures
    of one profile different ones. None: not reported, as in older files.
    """

    median_ns: _TimeNs
    spread: float = Field(ge=0, allow_inf_nan=False)
    repeats_ns: tuple[_TimeNs, ...] = Field(min_length=1)
    clock_hz: int | None = Field(default=None, ge=0)

    @property
    def steady(self) -> bool:
        """Return whether the spread is within ``UNSTEADY``."""
        return self.spread <= UNSTEADY


def measured_time(repeats_ns: Sequence[int], clock_hz: int | None = None) -> MeasuredTime:
    """Return the figure of ``repeats_ns``, at least two, measured at that clock."""
    median_ns = median_low(repeats_ns)
    low, _, high = quantiles(repeats_ns, n=4, method="inclusive")
    return MeasuredTime(
        median_ns=median_ns,
        spread=(high - low) / median_ns if median_ns else 0.0,
        repeats_ns=tuple(repeats_ns),
        clock_hz=clock_hz,
    )


class DeviceState(StrictModel):
    """The device at one moment. None: not reported. ``throttled`` lists the reasons for reduced clocks."""

    clock_hz: int | None = Field(ge=0)
    memory_clock_hz: int | None = Field(ge=0)
    temperature_c: int | None
    power_w: float | None
    throttled: tuple[str, ...] = ()


class Clocks(StrictModel):
    """The device's clock while repeats ran, from ``samples`` at regular intervals. None: not reported.

    ``throttled`` lists every reason for reduced clocks that any sample had.
    """

    samples: int = Field(ge=0)
    lowest_hz: int | None = Field(ge=0)
    median_hz: int | None = Field(ge=0)
    throttled: tuple[str, ...] = ()


class Ceiling(StrictModel):
    """The speed of the fastest product of two ``size`` x ``size`` matrices on the device. No model can exceed it.

    ``clocks`` are those of these products; None in files that do not have them.
    """

    size: int = Field(ge=1)
    time: MeasuredTime
    flops_per_s: float = Field(gt=0, allow_inf_nan=False)
    clocks: Clocks | None = None


class MeasuredConditions(StrictModel):
    """The device and software of a measurement.

    ``threads`` is the number of torch's threads on a CPU, None on a GPU. ``deterministic`` is whether torch used only
    kernels that give the same bits in every run. ``before`` is the device after the first matrix product, ``during``
    its clocks while the model's figures were measured, ``after`` the device after all figures. ``deterministic`` and
    ``during`` are None in files that do not have them.
    """

    measured_at: str = Field(min_length=1)
    driver: str | None
    versions: dict[str, str | None]
    threads: int | None = Field(ge=1)
    deterministic: bool | None = None
    ceiling: Ceiling
    before: DeviceState
    during: Clocks | None = None
    after: DeviceState

    @property
    def throttled(self) -> tuple[str, ...]:
        """Every reason for reduced clocks, at any time of the measurement, sorted."""
        seen = (self.before, self.after, self.during, self.ceiling.clocks)
        return tuple(sorted({reason for each in seen if each is not None for reason in each.throttled}))


def clocks_of(states: Sequence[DeviceState]) -> Clocks:
    """Return the clocks in ``states``, samples of the device while it was measured."""
    clocks_hz = [state.clock_hz for state in states if state.clock_hz is not None]
    return Clocks(
        samples=len(states),
        lowest_hz=min(clocks_hz, default=None),
        median_hz=median_low(clocks_hz) if clocks_hz else None,
        throttled=tuple(sorted({reason for state in states for reason in state.throttled})),
    )


def ceiling_of(size: int, repeats_ns: Sequence[int], clocks: Clocks | None = None) -> Ceiling:
    """Return the ceiling from matrix products of ``size``: 2 size^3 operations in the median time."""
    time = measured_time(repeats_ns)
    return Ceiling(size=size, time=time, flops_per_s=2 * size**3 / time.median_ns * 1e9, clocks=clocks)


@dataclass(frozen=True)
class MeasuredStageCosts:
    """The times of one stage: of each action of one microbatch, and of the optimizer step."""

    forward_ns: int
    backward_ns: int
    recompute_ns: int
    backward_input_ns: int
    backward_weight_ns: int
    optimizer_ns: int


class ProfileSource(StrictModel):
    """The source of some figures of a compute profile: which figures, and where they come from."""

    figures: str = Field(min_length=1)
    origin: str = Field(min_length=1)


def _known_precision(precision: str) -> str:
    bytes_per_element(precision)
    return precision


ProfilePrecision = Annotated[str, AfterValidator(_known_precision)]
"""The precision of a compute profile, one of those that models may have."""

PerSecond = Annotated[float, Field(ge=1e6, le=1e24)]
"""Operations or bytes per second, from a pocket calculator to a million times the fastest machine."""

Efficiency = Annotated[float, Field(ge=1e-6, le=1)]


class ComputeProfile(StrictModel):
    """The fields of every compute profile. A subclass adds its figures and the times that follow from them."""

    title: str = Field(min_length=1)
    basis: Literal["measured", "estimated"]
    device: str = Field(min_length=1)
    precision: ProfilePrecision
    source: tuple[ProfileSource, ...] = Field(min_length=1)

    @abstractmethod
    def stage_times(self, config: GptConfig, stages: int) -> tuple[MeasuredStageCosts, ...]:
        """Return the times of each stage.

        Raise InputError, one line, if the profile does not cover the model, ValueError if the model cannot have that
        many stages.
        """

    def activation_bytes(self, config: GptConfig) -> int:
        """Return the bytes of one microbatch's activation at a stage boundary, or of its gradient."""
        return config.activation_bytes(self.precision)

    def gradient_bytes(self, config: GptConfig, stages: int) -> tuple[int, ...]:
        """Return the bytes of the gradients of all weights, for each stage."""
        return tuple(config.gradient_bytes(stage, stages, self.precision) for stage in range(stages))


class EstimatedProfile(ComputeProfile):
    """Times estimated from operations and bytes. ``efficiency`` is an assumption.

    - forward = operations / (peak x efficiency), with the operations of ``GptConfig.forward_flops``
    - recompute = forward
    - backward = 2 forward: half for the input and half for the weights, each a matrix product of the forward's size
    - optimizer = parameters x bytes moved for each / memory bandwidth

    The forward of the embedding, norms and the reading of weights are not counted; ``efficiency`` must cover them.
    """

    basis: Literal["estimated"]
    peak_flops_per_s: PerSecond
    efficiency: Efficiency
    memory_bandwidth_bytes_per_s: PerSecond
    optimizer_bytes_per_parameter: float = Field(ge=0, le=1e6)

    def stage_times(self, config: GptConfig, stages: int) -> tuple[MeasuredStageCosts, ...]:
        """Return the times of each stage. Raise ValueError if the model cannot have that many stages."""
        return tuple(self._times_of(config, stage, stages) for stage in range(stages))

    def _times_of(self, config: GptConfig, stage: int, stages: int) -> MeasuredStageCosts:
        forward_ns = round(config.forward_flops(stage, stages) / (self.peak_flops_per_s * self.efficiency) * 1e9)
        moved_bytes = config.parameters(stage, stages) * self.optimizer_bytes_per_parameter
        return MeasuredStageCosts(
            forward_ns=forward_ns,
            backward_ns=2 * forward_ns,
            recompute_ns=forward_ns,
            backward_input_ns=forward_ns,
            backward_weight_ns=forward_ns,
            optimizer_ns=round(moved_bytes / self.memory_bandwidth_bytes_per_s * 1e9),
        )


class PartTimes(StrictModel):
    """The measured times of one part of a model: one layer, the embedding, or the head with its norm."""

    forward_ns: _TimeNs
    backward_ns: _TimeNs
    recompute_ns: _TimeNs
    backward_input_ns: _TimeNs
    backward_weight_ns: _TimeNs
    optimizer_ns: _TimeNs


class MeasuredModel(StrictModel):
    """The model whose parts were measured. The times hold for any number of its layers."""

    hidden: int = Field(ge=1, le=MAX_HIDDEN)
    context: int = Field(ge=1, le=MAX_CONTEXT_TOKENS)
    heads: int = Field(ge=1, le=MAX_HEADS)
    vocabulary: int = Field(ge=1, le=MAX_VOCABULARY_TOKENS)


class MeasuredStage(StrictModel):
    """The measurement of one stage of ``layers`` layers. The first has the embedding too, the last the head.

    ``forward_flops`` are the operations of its forward (see ``GptConfig.causal_forward_flops``).
    """

    position: Literal["first", "middle", "last"]
    layers: int = Field(ge=1, le=MAX_LAYERS)
    forward_flops: int = Field(ge=1, le=10**30)
    forward: MeasuredTime
    backward: MeasuredTime
    recompute: MeasuredTime
    backward_input: MeasuredTime
    backward_weight: MeasuredTime
    optimizer: MeasuredTime

    def times(self) -> Iterator[tuple[str, MeasuredTime]]:
        """Yield the name and the measured time of every action."""
        for name in ("forward", "recompute", "backward", "backward_input", "backward_weight", "optimizer"):
            yield name, getattr(self, name)

    @property
    def flops_per_s(self) -> float:
        """Operations per second over forward, recompute and backward, together four times a forward's operations."""
        spent_ns = self.forward.median_ns + self.recompute.median_ns + self.backward.median_ns
        return 4 * self.forward_flops / max(1, spent_ns) * 1e9


class ModelTimes(StrictModel):
    """The times of the parts of one model. ``stages`` are the measurements that they come from; empty if not kept."""

    model: MeasuredModel
    embedding: PartTimes
    layer: PartTimes
    head: PartTimes
    stages: tuple[MeasuredStage, ...] = ()

    def stage_times(self, layers: int, *, first: bool, last: bool) -> MeasuredStageCosts:
        """Return the times of a stage of ``layers`` layers: the sum over its parts."""
        parts = ((self.layer, layers), (self.embedding, int(first)), (self.head, int(last)))
        return MeasuredStageCosts(
            **{name: sum(getattr(part, name) * count for part, count in parts) for name in PartTimes.model_fields}
        )


class MeasuredProfile(ComputeProfile):
    """The measured times of the parts of one or more ``models``. A stage's times are the sum over its parts.

    A file with one model may contain the fields of ``ModelTimes`` directly instead of ``models``.
    """

    basis: Literal["measured"]
    models: tuple[ModelTimes, ...] = Field(min_length=1)
    conditions: MeasuredConditions | None = None

    @model_validator(mode="before")
    @classmethod
    def _one_model_by_itself(cls, written: object) -> object:
        if not isinstance(written, Mapping) or "models" in written:
            return written
        rest = {name: value for name, value in written.items() if name not in ModelTimes.model_fields}
        return {**rest, "models": [{name: written[name] for name in ModelTimes.model_fields if name in written}]}

    def stage_times(self, config: GptConfig, stages: int) -> tuple[MeasuredStageCosts, ...]:
        """Return the times of each stage.

        Raise InputError unless a model with the same dimensions, except the number of layers, was measured. Raise
        ValueError if the model cannot have that many stages.
        """
        if not config.trains_in_torch:
            raise InputError(
                f"profile {self.title!r}: measured of a plain GPT (architecture gpt, as many kv_heads as heads, a "
                "feed_forward of 4 times hidden, a head of its own): leave these fields of the model out, or take an "
                "estimated profile"
            )
        times = self._times_of(config)
        return tuple(
            times.stage_times(len(config.layers_of(stage, stages)), first=stage == 0, last=stage == stages - 1)
            for stage in range(stages)
        )

    def _times_of(self, config: GptConfig) -> ModelTimes:
        for times in self.models:
            if all(getattr(config, name) == measured for name, measured in times.model):
                return times
        for name in MeasuredModel.model_fields:
            measured = [getattr(times.model, name) for times in self.models]
            if getattr(config, name) not in measured:
                raise InputError(
                    f"profile {self.title!r}: measured with {name} {' and '.join(map(str, dict.fromkeys(measured)))}, "
                    f"not {getattr(config, name)}: measure this model, or take an estimated profile"
                )
        raise InputError(
            f"profile {self.title!r}: measured with none of its models in these dimensions together: measure this "
            "model, or take an estimated profile"
        )
