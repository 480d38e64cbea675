"""Transfers over a line and over a full trunk, for ``test_transfers.py``; as a program, in virtual time, as JSON.

Each is told as its size, the pause before it, and the seconds that it was to take and that it took; of transfers that
begin at once, the longest.
"""

import json
import time
from collections.abc import Iterable
from contextlib import ExitStack

from wanbed.ground.strict_model import parse_model
from wanbed.testbed.measurement.bounded_transfer import Ends
from wanbed.testbed.measurement.transfer_calibration import open_connection, open_windows, transfers_s, wire_bytes
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.testbed.network.topology import Topology, resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec
from wanbed.testbed.testbed import bring_up

RATE_BPS, LATENCY_S = 100_000_000, 0.02
SIZES = (4 * 2**10, 64 * 2**10, 2**20, 16 * 2**20)
PAUSES_S = (0.1, 1.0, 10.0)
OPEN_BYTES = 2**20
"""A window holds all of a transfer of that size; more than that waits for acknowledgements that keep coming."""

Told = list[tuple[int, float, float, float]]


def network() -> Topology:
    """Two datacenters of two hosts; one node pair has the trunk to itself, two fill it."""
    document = {
        "datacenters": [{"name": name, "hosts": 2} for name in ("east", "west")],
        "wan": {"latency": f"{LATENCY_S}s", "rate": f"{RATE_BPS}bit"},
    }
    return resolve_topology(parse_model(TopologySpec, document, "transfers"))


def transfers(substrate: str, pairs: int, sizes: Iterable[int], pauses_s: Iterable[float]) -> Told:
    """Make them, on so many node pairs at once."""
    lines: Told = []
    with bring_up(network(), substrate=substrate, source="transfers") as testbed:
        testbed.use_tcp(TcpSettings(congestion="reno", slow_start_after_idle=False))
        for size in sizes:
            with ExitStack() as held:
                flight_bytes = min(size, OPEN_BYTES)
                ends = [Ends(testbed, f"east-{pair}", f"west-{pair}") for pair in range(pairs)]
                connections = [held.enter_context(open_connection(each, 3 * OPEN_BYTES)) for each in ends]
                open_windows(connections, flight_bytes, RATE_BPS, 2 * LATENCY_S)
                for pause_s in pauses_s:
                    time.sleep(pause_s)
                    asked_s = 8 * pairs * wire_bytes(size, testbed.mtu_bytes) / RATE_BPS + LATENCY_S
                    lines.append((size, pause_s, asked_s, max(transfers_s(connections, size, RATE_BPS))))
    return lines


if __name__ == "__main__":
    print(json.dumps([transfers("kernel", pairs, SIZES, PAUSES_S) for pairs in (1, 2)]))
