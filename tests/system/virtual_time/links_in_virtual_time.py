"""A program for ``test_virtual_time.py``: run in virtual time, it measures links and prints what it found as JSON.

``calibrated`` are links as calibration measures them, ``apart`` one whose directions differ, ``slow`` one of a modem,
``jumbo`` one of long frames; ``untuned`` is the pace of
connections that the kernel tunes as a stock host does, once they have come to their pace, by latency in ms and number
of connections.
"""

import json
from dataclasses import asdict
from typing import Any

from wanbed.ground.strict_model import parse_model
from wanbed.testbed.measurement.bounded_transfer import Ends, transfer_bps
from wanbed.testbed.measurement.calibration import calibrate
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.testbed.network.topology import Topology, resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec
from wanbed.testbed.testbed import bring_up

RATES = ("1Gbit", "5Gbit")
LATENCIES_MS = (10, 20, 30, 40)
MANY = 24
_MEGABYTE = 10**6


def network(links: dict[str, dict[str, str]], others: str) -> Topology:
    """A datacenter ``here``, and one for each link from it, by its name; node pairs of ``others`` have that rate."""
    document = {
        "datacenters": [{"name": name, "hosts": 2 if name == "here" else 1} for name in ("here", *links)],
        "wan": {"latency": "20ms", "rate": "100Gbit", "node_pair_rate": others},
        "links": [{"between": ["here", name], **link} for name, link in links.items()],
        "intra": {"latency": "50us", "rate": "unlimited"},
    }
    return resolve_topology(parse_model(TopologySpec, document, "links in virtual time"))


def calibrated() -> list[dict[str, Any]]:
    """Every link of a network of three rates: the datacenters beside ``here`` have the third between them."""
    topology = network({f"at{rate}": {"node_pair_rate": rate} for rate in RATES}, others="100Mbit")
    with bring_up(topology, substrate="kernel", source="links in virtual time") as testbed:
        return [{**asdict(link), **link.in_columns()} for link in calibrate(testbed)]


def apart() -> list[dict[str, Any]]:
    """Both directions of a link: 40 ms and 100 Mbit/s from ``here``, 10 ms and 400 Mbit/s to it."""
    return between_two(
        {"from": "here", "to": "there", "latency": "40ms", "rate": "100Mbit"},
        {"from": "there", "to": "here", "latency": "10ms", "rate": "400Mbit"},
    )


def slow() -> list[dict[str, Any]]:
    """Both directions of a link of 9600 bit/s, at which a full frame takes more than a second."""
    return between_two({"between": ["here", "there"], "latency": "10ms", "rate": "9600bit"})


def jumbo() -> list[dict[str, Any]]:
    """Both directions of a link of 200 Mbit/s with an MTU of 9001 bytes."""
    return between_two({"between": ["here", "there"], "latency": "10ms", "rate": "200Mbit"}, mtu="9001B")


def between_two(*links: dict[str, Any], mtu: str = "1500B") -> list[dict[str, Any]]:
    """Both directions between two datacenters, as calibration measures them."""
    datacenters = [{"name": name, "hosts": 1} for name in ("here", "there")]
    document = {"datacenters": datacenters, "links": list(links), "mtu": mtu}
    topology = resolve_topology(parse_model(TopologySpec, document, "links in virtual time"))
    with bring_up(topology, substrate="kernel", source="links in virtual time") as testbed:
        return [{**asdict(link), **link.in_columns()} for link in calibrate(testbed)]


def untuned() -> list[tuple[int, int, float]]:
    """Latency, connections, and what they carry together in bit/s."""
    measured = []
    topology = network({f"at{latency}ms": {"latency": f"{latency}ms"} for latency in LATENCIES_MS}, others="5Gbit")
    with bring_up(topology, substrate="kernel", source="links in virtual time") as testbed:
        testbed.use_tcp(TcpSettings())
        for latency_ms, connections in (*((latency_ms, 1) for latency_ms in LATENCIES_MS), (LATENCIES_MS[-1], MANY)):
            pace_bps = transfer_bps(
                Ends(testbed, "here-0", f"at{latency_ms}ms-0"),
                connections,
                buffer_bytes=None,
                # A lone connection has its pace after 20 round trips, of 3 MB each at any latency; many fill 50 MB.
                warming_bytes=(120 if connections == 1 else 1500) * _MEGABYTE,
                measured_bytes=(100 if connections == 1 else 300) * _MEGABYTE,
                # What lies unread takes room in the window.
                turn_s=2 * latency_ms / 1e3 / (100 if connections == 1 else 32),
                patience_s=60,
            )
            measured.append((latency_ms, connections, pace_bps))
    return measured


if __name__ == "__main__":
    print(
        json.dumps(
            {"calibrated": calibrated(), "apart": apart(), "slow": slow(), "jumbo": jumbo(), "untuned": untuned()}
        )
    )
