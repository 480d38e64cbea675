"""A fluid network, written for tests alone: everything that is sent has its max-min fair rate at every instant.

It is naive on purpose. After each event all rates are filled progressively from nothing, in exact fractions, with no
knowledge of what is alike or what has changed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from heapq import heappop, heappush
from itertools import count

BITS_NS = 8 * 10**9
Then = Callable[[], None]

Resource = tuple[str, object]
"""A kind, and whose it is."""


@dataclass
class FluidChannel:
    """What one place sends to another, first come, first served; each transfer with what follows when it has left."""

    hosts: tuple[str, str]
    waiting: list[tuple[Fraction, Then]] = field(default_factory=list)


class FluidNetwork:
    """Node pairs that share resources, and channels that share node pairs evenly.

    ``crossed`` gives the names of the resources that a node pair crosses, ``capacities_bps`` their capacities.
    """

    def __init__(
        self, crossed: Callable[[tuple[str, str]], Sequence[Resource]], capacities_bps: Callable[[Resource], int]
    ) -> None:
        self._crossed, self._capacities_bps = crossed, capacities_bps
        self._channels: dict[object, FluidChannel] = {}
        self._agenda: list[tuple[Fraction, int, Then]] = []
        self._added = count()
        self.now_ns = Fraction(0)

    def after(self, delay_ns: Fraction | int, then: Then) -> None:
        """Do something later."""
        heappush(self._agenda, (self.now_ns + delay_ns, next(self._added), then))

    def send(self, channel: object, hosts: tuple[str, str], size_bytes: int, then: Then) -> None:
        """Send bytes over a channel between two hosts, and do something when the last one has left."""
        own = self._channels.setdefault(channel, FluidChannel(hosts))
        own.waiting.append((Fraction(size_bytes * BITS_NS), then))

    def run(self) -> None:
        """Go on until nothing is left to do."""
        while True:
            sending = [channel for channel in self._channels.values() if channel.waiting]
            rates = self._rates({channel.hosts for channel in sending})
            sharing = [channel.hosts for channel in sending]
            rate = {
                id(channel): rates[channel.hosts] / sharing.count(channel.hosts)
                for channel in sending
                if channel.hosts in rates
            }
            unlimited = [channel for channel in sending if channel.hosts not in rates]
            if unlimited:
                unlimited[0].waiting.pop(0)[1]()
                continue
            ends = [channel.waiting[0][0] / rate[id(channel)] for channel in sending]
            events = [time_ns - self.now_ns for time_ns, _, _ in self._agenda[:1]]
            if not ends and not events:
                return
            step_ns = min([*ends, *events])
            self.now_ns += step_ns
            left = []
            for channel in sending:
                bits_ns, then = channel.waiting[0]
                channel.waiting[0] = bits_ns - rate[id(channel)] * step_ns, then
                if not channel.waiting[0][0]:
                    left.append(channel)
            for channel in left:
                channel.waiting.pop(0)[1]()
            while self._agenda and self._agenda[0][0] == self.now_ns:
                heappop(self._agenda)[2]()

    def _rates(self, pairs: set[tuple[str, str]]) -> dict[tuple[str, str], Fraction]:
        """Return the max-min fair rate of each node pair that crosses any resource."""
        crossed = {pair: self._crossed(pair) for pair in pairs if self._crossed(pair)}
        rates: dict[tuple[str, str], Fraction] = {}
        while len(rates) < len(crossed):
            shares = {}
            for resource in {each for resources in crossed.values() for each in resources}:
                over = [pair for pair, resources in crossed.items() if resource in resources]
                rest = [pair for pair in over if pair not in rates]
                if rest:
                    taken = sum((rates[pair] for pair in over if pair in rates), Fraction(0))
                    shares[resource] = (self._capacities_bps(resource) - taken) / len(rest)
            least = min(shares.values())
            full = [resource for resource, share in shares.items() if share == least]
            for pair, resources in crossed.items():
                if pair not in rates and any(resource in full for resource in resources):
                    rates[pair] = least
        return rates
