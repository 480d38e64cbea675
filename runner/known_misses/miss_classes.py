"""Define the kinds of trials whose simulations are known to be off: what each is, why it is off, and by how much.

Ranges are of measured trials, those of ``runner.validation.known_misses``, which a test holds against them.
"""

from collections.abc import Callable
from dataclasses import dataclass

from results.reading.known_misses import KnownMiss
from runner.known_misses.wan_traffic import WanTraffic

NEAR_THE_LINE = (0.9, 1.5)
"""From where to where the window of a single connection is about what the line holds."""
DEEP_QUEUES = 50
"""How many times what the line holds the windows of rings are far beyond it."""


@dataclass(frozen=True)
class MissClass:
    """A kind of trial: what is recorded of it, why simulations are off, and whether a trial is of this kind."""

    miss: KnownMiss
    why: str
    applies: Callable[[WanTraffic], bool]


def _unequal_connections(traffic: WanTraffic) -> bool:
    return traffic.connections > 1 and traffic.window_over_line >= 1


def _rings_over_connections(traffic: WanTraffic) -> bool:
    return _unequal_connections(traffic) and traffic.rings_cross


def _window_near_the_line(traffic: WanTraffic) -> bool:
    least, most = NEAR_THE_LINE
    return traffic.connections == 1 and least <= traffic.window_over_line < most


def _rings_over_deep_queues(traffic: WanTraffic) -> bool:
    return traffic.rings_cross and traffic.window_over_line >= DEEP_QUEUES


MISS_CLASSES: tuple[MissClass, ...] = (
    MissClass(
        KnownMiss("unequal-connections", "several connections fill a node pair", -0.30, 0.07, 103),
        "Each connection leaves cubic's slow start at another moment (HyStart) and keeps a window of another width. A "
        "transfer is whole when the narrowest has sent its chunks. The simulator takes connections for equal.",
        _unequal_connections,
    ),
    MissClass(
        KnownMiss("rings-over-connections", "rings over the WAN use several connections", -0.17, 0.07, 30),
        "As above, at every step of the ring: the last chunk of a step holds the next step up, and what follows goes "
        "ahead of it over wider connections.",
        _rings_over_connections,
    ),
    MissClass(
        KnownMiss("window-near-the-line", "a connection's window is about what the line holds", -0.07, 0.06, 11),
        "Whether the window or the line is the limit is then decided by how congestion avoidance grows after slow "
        "start and after a pause, which the simulator has as a twentieth a round.",
        _window_near_the_line,
    ),
    MissClass(
        KnownMiss("full-trunk", "node pairs together fill a trunk", -0.17, 0.07, 55),
        "Real TCP shares a full trunk equally in the mean only: windows that opened earlier keep more for a while. The "
        "simulator shares it max-min at every instant.",
        lambda traffic: traffic.fills_a_trunk,
    ),
    MissClass(
        KnownMiss("rings-over-deep-queues", "rings over the WAN queue far beyond what the line holds", -0.17, 0.12, 25),
        "Both directions are full behind windows of 50 times what the line holds and more. Acknowledgements wait "
        "behind the other direction's bytes; window by window, the simulator lets them wait longer than packets do.",
        _rings_over_deep_queues,
    ),
)
