"""Name the device's clock beside figures: a power cap lowers it, and figures at other clocks are not comparable."""

from collections.abc import Iterator
from contextlib import contextmanager

from wanbed.results.text import held_down_text
from wanbed.runner.compute_profiling.device_at_hand import ClockSampler, device_at_hand
from wanbed.runner.compute_profiling.profile_text import clocks_text
from wanbed.workloads.profiles.compute_profile import clocks_of


@contextmanager
def clocks_named(device: str) -> Iterator[None]:
    """Sample the device's clock in the block, and print a line with it after the block.

    Raise MissingError if the device is not there or does not report its clock.
    """
    with device_at_hand(device) as at_hand:
        sampler = ClockSampler(at_hand.state, at_hand.state_interval_s)
        with sampler.sampling():
            yield
        clocks = clocks_of(sampler.take())
        print(f"       clock of {at_hand.name}: {clocks_text(clocks)}{held_down_text(clocks.throttled)}", flush=True)
