"""Carry messages of any size between ranks: those from one to another go over one channel, one after the other."""

from collections.abc import Mapping
from typing import Generic

from wanbed.flow.channel import Channel
from wanbed.flow.striping import Striping
from wanbed.runner.simulator.channels.network import Ends, Network, Variant
from wanbed.runner.simulator.channels.transfers import Arrived, OwnTransfers
from wanbed.runner.simulator.channels.wan_traffic import Crossing
from wanbed.workloads.transport.frame import HEADER_BYTES, Cutting


class Messages(Generic[Variant]):
    """Sends messages as ranks do: cut into chunks, with their headers, striped over the connections of the two hosts.

    ``channels`` are those of ``network``, one for each two places of which the first sends to the second.
    """

    def __init__(self, network: Network[Variant], channels: Mapping[Ends, Channel]) -> None:
        self._network, self._channels = network, channels
        self._transfers: dict[tuple[Ends, int], OwnTransfers] = {}

    def send(self, now_ns: int, ends: Ends, size_bytes: int, arrived: Arrived) -> None:
        """Queue a message. ``arrived`` is called with all its times once they are known.

        They are when its first byte and its last one leave, and when these arrive.
        """
        transfers = self._transfers.get((ends, size_bytes))
        if transfers is None:
            connections = self._network.connections_between(ends)
            cutting = Cutting(size_bytes, 1, connections)
            frames = cutting.chunks * HEADER_BYTES if self._network.effects.headers else 0
            striping = Striping(connections, cutting.chunks, cutting.largest_bytes) if connections > 1 else None
            transfers = OwnTransfers(self._channels[ends], size_bytes + frames, striping)
            self._transfers[ends, size_bytes] = transfers
        transfers.offer(now_ns, 0, 0, arrived)

    def crossed(self) -> list[Crossing]:
        """Return the channels over the WAN, each with its ends."""
        return [(ends, each) for ends, each in self._channels.items() if ends[0].datacenter != ends[1].datacenter]
