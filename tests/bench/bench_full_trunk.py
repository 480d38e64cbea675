"""How long a transfer takes to simulate on a full trunk, the more node pairs share it: as long as with few."""

import random
import time

from wanbed.flow.event_queue import EventQueue
from wanbed.flow.line import Line
from wanbed.flow.shared_capacity import NodePairFlow, SharedCapacity
from wanbed.flow.shared_channel import SharedChannel
from wanbed.flow.window import TcpWindow

TRUNK_BPS, NODE_PAIR_BPS, LATENCY_NS = 100 * 10**9, 5 * 10**9, 10**6
TRANSFERS = 10


def seconds_per_transfer(node_pairs: int) -> float:
    """Return the CPU seconds of a transfer, where each of the node pairs sends ten, of 1 to 100 MB."""
    choose, events = random.Random(1), EventQueue()
    trunk = node_pairs
    capacities_bps = {**dict.fromkeys(range(node_pairs), NODE_PAIR_BPS), trunk: TRUNK_BPS}
    capacity = SharedCapacity(events, capacities_bps, own=range(node_pairs))
    for number in range(node_pairs):
        flow, line = NodePairFlow(number, [number, trunk]), Line(NODE_PAIR_BPS, LATENCY_NS, headers=True)
        channel = SharedChannel(line, TcpWindow(2 * LATENCY_NS, None, None), flow, capacity)
        for _ in range(TRANSFERS):
            channel.queue(choose.randint(0, 10**7), choose.randint(10**6, 10**8), _nothing)
    begin = time.process_time()
    while events.handle_next_instant():
        pass
    return (time.process_time() - begin) / (node_pairs * TRANSFERS)


def _nothing(_first_ns: int, _last_ns: int) -> None:
    pass


def test_a_transfer_on_a_full_trunk_costs_the_same_however_many_node_pairs_send() -> None:
    costs = {node_pairs: seconds_per_transfer(node_pairs) for node_pairs in (100, 400, 1_600)}
    print("\n" + ", ".join(f"{pairs} node pairs: {cost * 1e6:.0f} us a transfer" for pairs, cost in costs.items()))
    assert costs[1_600] < 3 * costs[100]
