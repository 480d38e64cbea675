"""The conditions under which a compute profile was measured, and the spread of each figure."""

from collections.abc import Sequence
from statistics import median_low, quantiles
from typing import Annotated

from pydantic import Field

from wanbed.ground.strict_model import StrictModel
from wanbed.ground.units import MAX_DURATION_NS

TimeNs = Annotated[int, Field(ge=0, le=MAX_DURATION_NS)]
"""The time of one action in nanoseconds."""

UNSTEADY = 0.03
"""The spread above which texts about a compute profile call a figure unsteady."""


class MeasuredTime(StrictModel):
    """One figure: the ``repeats_ns`` in their order, their median, and their spread.

    The spread is the distance between the quartiles, which contain half of the repeats, divided by the median.
    ``clock_hz`` is the device's median clock while its stage, prompt or chunk was measured: a power cap gives figures
    of one profile different ones. None: not reported, as in older files.
    """

    median_ns: TimeNs
    spread: float = Field(ge=0, allow_inf_nan=False)
    repeats_ns: tuple[TimeNs, ...] = Field(min_length=1)
    clock_hz: int | None = Field(default=None, ge=0)

    @property
    def steady(self) -> bool:
        """Whether the spread is within ``UNSTEADY``."""
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
