"""Name the device's clock beside figures: a power cap lowers it, and figures at other clocks are not comparable."""

from collections.abc import Iterator
from contextlib import contextmanager

from results.text.number_text import clock_text, count_text, list_text
from runner.profiling.clock_sampler import ClockSampler
from runner.profiling.device_at_hand import device_at_hand
from workloads.profiles.measured_conditions import Clocks, clocks_of


@contextmanager
def clocks_named(device: str) -> Iterator[None]:
    """Sample the device's clock in the block, and print a line with it after the block.

    Raise MissingError if the device is not there or does not report its clock.
    """
    with device_at_hand(device) as at_hand:
        sampler = ClockSampler(at_hand.state, at_hand.state_interval_s)
        with sampler.sampling():
            yield
        print(f"       clock of {at_hand.name}: {text_of(clocks_of(sampler.take()))}", flush=True)


def text_of(clocks: Clocks) -> str:
    """Return clocks in one line, with the reasons for which they were held down."""
    held = f", held down by its {list_text([*clocks.throttled])}" if clocks.throttled else ""
    return (
        f"median {clock_text(clocks.median_hz)}, lowest {clock_text(clocks.lowest_hz)}, "
        f"{count_text(clocks.samples, 'sample')}{held}"
    )
