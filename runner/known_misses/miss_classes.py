"""Define the kinds of trials whose simulations are known to be off: what each is, why it is off, and by how much.

Ranges are of measured trials, those of ``wanbed.runner.validation.known_misses``, which a test holds against them.
"""

from collections.abc import Callable
from dataclasses import dataclass

from wanbed.results.reading.known_misses import ALL_ITERATIONS, GOODPUT, ITERATIONS, KnownMiss
from wanbed.runner.known_misses.wan_traffic import WanTraffic

NEAR_THE_LINE = (0.9, 1.5)
"""From where to where the window of a single connection is about what the line holds."""
SHORT_TRANSFERS = (0.1, 1.0)
"""From where to where transfers are so short, against what the line holds, that windows open over several of them."""
FEW_LINES, LONG_TRANSFERS = 5.0, 3.0
"""Up to how many times what the line holds a window is short of both directions, and from when transfers are long."""
DEEP_QUEUES = 50
"""The ratio of the windows of rings to what the line holds, from which they are far beyond it."""


@dataclass(frozen=True)
class MissClass:
    """A kind of trial: what is recorded of it, why simulations are off, and whether a trial is of this kind.

    The range is of trials that have the WAN for themselves, or if the kind ``is_shared`` of those that do not.
    """

    miss: KnownMiss
    why: str
    applies: Callable[[WanTraffic], bool]
    is_shared: bool = False


def _rings_over_connections(traffic: WanTraffic) -> bool:
    return traffic.connections > 1 and traffic.rings_cross


def _opens_over_several_transfers(traffic: WanTraffic) -> bool:
    follows_cubic = traffic.variant.transport.congestion != "reno"
    least, most = SHORT_TRANSFERS
    short = any(least <= ratio < most for ratio in traffic.transfer_over_line)
    return traffic.connections == 1 and traffic.window_over_line >= NEAR_THE_LINE[0] and follows_cubic and short


def _window_near_the_line(traffic: WanTraffic) -> bool:
    least, most = NEAR_THE_LINE
    return traffic.connections == 1 and least <= traffic.window_over_line < most


def _long_transfers_both_ways(traffic: WanTraffic) -> bool:
    is_long = any(ratio >= LONG_TRANSFERS for ratio in traffic.transfer_over_line)
    return traffic.connections == 1 and NEAR_THE_LINE[1] <= traffic.window_over_line < FEW_LINES and is_long


def _rings_over_deep_queues(traffic: WanTraffic) -> bool:
    return traffic.rings_cross and traffic.window_over_line >= DEEP_QUEUES


def _flows(figure: str, low: float, high: float, cells: int) -> KnownMiss:
    name = "background-goodput" if figure == GOODPUT else "background"
    return KnownMiss(name, "flows in the background share the WAN", low, high, cells, figure)


MISS_CLASSES: tuple[MissClass, ...] = (
    MissClass(
        KnownMiss("unequal-connections", "several connections join a node pair", -0.44, 0.41, 211),
        "Each connection leaves cubic's slow start at another moment (HyStart) and keeps a window of another width. A "
        "transfer is whole when the narrowest has sent its chunks. The simulator takes connections for equal. With "
        "reno 15 of 16 trials were within 2 %.",
        lambda traffic: traffic.connections > 1,
    ),
    MissClass(
        KnownMiss("rings-over-connections", "rings over the WAN use several connections", -0.31, 0.41, 67),
        "As above, at every step of the ring: the last chunk of a step holds the next step up, and what follows goes "
        "ahead of it over wider connections.",
        _rings_over_connections,
    ),
    MissClass(
        KnownMiss("short-transfers", "a connection's window opens over several transfers", -0.41, 0.08, 65),
        "A transfer of a tenth to all of what the line holds is over before slow start is. Cubic's HyStart may end "
        "slow start far below the line: in one of these trials a window was at 50 to 150 segments for 16 s, where the "
        "line holds 690. The simulator ends slow start at about what the line holds.",
        _opens_over_several_transfers,
    ),
    MissClass(
        KnownMiss("window-near-the-line", "a connection's window is about what the line holds", -0.22, 0.09, 32),
        "Whether the window or the line is the limit is then decided by how a window grows after slow start and after "
        "a pause, which the simulator has as a twentieth a round.",
        _window_near_the_line,
    ),
    MissClass(
        KnownMiss(
            "long-transfers-both-ways", "a window of a few times the line carries long transfers", -0.12, 0.05, 22
        ),
        "Both directions are full, and acknowledgements wait behind the other direction's bytes: a window that is "
        "enough for the line alone is not for the line and that wait. How long they wait depends on which direction "
        "is ahead; packets settle that otherwise than the simulator's windows do.",
        _long_transfers_both_ways,
    ),
    MissClass(
        KnownMiss("full-trunk", "node pairs together fill a trunk", -0.31, 0.34, 85),
        "Real TCP shares a full trunk equally in the mean only: windows that opened earlier keep more for a while. The "
        "simulator shares it max-min at every instant.",
        lambda traffic: traffic.fills_a_trunk,
    ),
    MissClass(
        KnownMiss("rings-over-deep-queues", "rings over the WAN queue far beyond what the line holds", -0.32, 0.41, 48),
        "Both directions are full behind windows of 50 times what the line holds and more. Acknowledgements wait "
        "behind the other direction's bytes; window by window, the simulator lets them wait longer than packets do.",
        _rings_over_deep_queues,
    ),
    MissClass(
        KnownMiss("jobs-on-a-full-trunk", "jobs together fill a trunk", -0.04, 0.70, 16),
        "As of a full trunk. One trial is far off, the others are within 9 %. Its transfers are short against what the "
        "line holds as well (`short-transfers`); more is not known.",
        lambda traffic: traffic.fills_a_trunk_with_others,
        is_shared=True,
    ),
    MissClass(
        _flows(ITERATIONS, -0.36, 0.01, 16),
        "A simulation shares a trunk max-min at every instant. Real flows have their share in the mean only, by "
        "windows that opened at other moments.",
        lambda traffic: traffic.has_background,
        is_shared=True,
    ),
    MissClass(
        _flows(GOODPUT, -0.34, 0.02, 44),
        "The same from the side of the flows: what they carried while iterations were measured.",
        lambda traffic: traffic.has_background,
        is_shared=True,
    ),
    MissClass(
        KnownMiss("outage", "a link is down for a while", -0.67, 0.28, 24, ALL_ITERATIONS),
        "Training goes on with the first retransmission that finds the link up. Which one that is differs from "
        "connection to connection, and between two of them the wait doubles. The four trials that took nearly "
        "twice as long as simulated and more are also of the kind `short-transfers`: how long the outage was made no "
        "difference to them.",
        lambda traffic: traffic.breaks,
    ),
    MissClass(
        KnownMiss("loss-or-jitter", "packets are lost or delayed at random", -0.18, 0.13, 54),
        "Each course of losses is one of many. The trials and their intervals are on a page of their own: "
        "[lossy-links.md](lossy-links.md). Beyond what was validated there, simulations are reported as not modelled.",
        lambda traffic: traffic.is_drawn_as_compared,
    ),
)
