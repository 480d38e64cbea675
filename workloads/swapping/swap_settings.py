"""Define the settings by which a rank that computes for real swaps a whole model through its device."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SwapSettings:
    """``layers_of_groups`` are the groups, None to choose them by times that the rank measures when it begins.

    ``memory_bytes`` is what the device has for the weights of two groups, None for no limit.
    """

    layers_of_groups: tuple[int, ...] | None = None
    memory_bytes: int | None = None
