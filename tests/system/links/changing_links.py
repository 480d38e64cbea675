"""A network whose WAN link changes, and what packets meet on it; as a program: the same in virtual time, as JSON.

The network has two datacenters of two hosts. Each phase changes one thing; the trunk binds in one phase only.
"""

import json
import threading
import time
from dataclasses import asdict, replace
from typing import Any

from tests.system.links.numbered_datagrams import DatagramFlow, Sent, send_at
from wanbed.ground.strict_model import parse_model
from wanbed.ground.units import parse_duration_ns, parse_rate_bps
from wanbed.testbed.hosts.ping import PingResult
from wanbed.testbed.kernel.course_run import CourseRecord
from wanbed.testbed.measurement.bounded_transfer import Ends
from wanbed.testbed.measurement.calibration import calibrate
from wanbed.testbed.network.links.wan_link import LinkConditions, course_of
from wanbed.testbed.network.topology import Topology, resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec
from wanbed.testbed.running_testbed import RunningTestbed
from wanbed.testbed.testbed import bring_up

MS, S = 10**6, 10**9
FIRST = LinkConditions(40 * MS, parse_rate_bps("1Gbit"), parse_rate_bps("100Mbit"))
PHASES = {
    0: FIRST,
    1 * S: replace(FIRST, latency_ns=10 * MS),
    2 * S: replace(FIRST, latency_ns=10 * MS, node_pair_rate_bps=parse_rate_bps("20Mbit")),
    3 * S: replace(FIRST, rate_bps=parse_rate_bps("50Mbit"), node_pair_rate_bps=parse_rate_bps("40Mbit")),
    4 * S: replace(FIRST, up=False),
    5 * S: replace(FIRST, rate_bps=None, node_pair_rate_bps=None),
}
"""The conditions by the time from which they hold, for a second each."""
END_NS = 6 * S
SMALL_BYTES, FULL_BYTES = 16, 1448
BURST, BEFORE_NS = 200, 20 * MS
"""Full datagrams that are sent at once, so long before a change: they wait when it comes."""


def network() -> Topology:
    """The network, both directions of whose link have the same course."""
    document = {
        "datacenters": [{"name": name, "hosts": 2} for name in ("east", "west")],
        "wan": {"latency": "40ms"},
        "intra": {"latency": "50us", "rate": "unlimited"},
    }
    topology = resolve_topology(parse_model(TopologySpec, document, "changing links"))
    course = course_of(PHASES.items())
    (link,) = topology.wan
    return replace(topology, wan=(replace(link, conditions=FIRST, courses=(course, course)),))


def probed(testbed: RunningTestbed, *, spacing_ns: int, near_ns: int) -> dict[str, Any]:
    """Let the courses run once, and return what numbered datagrams met meanwhile.

    A datagram is sent every 5 ms, and every ``near_ns`` around a change. Bursts of two node pairs wait when the rates
    change and when the link goes down. Of each datagram it also says when it was planned to be sent.
    """
    assert testbed.changing is not None
    flow = DatagramFlow(Ends(testbed, "east-0", "west-0"))
    bursts = {
        at_ns: [DatagramFlow(Ends(testbed, *pair)) for pair in (("east-0", "west-0"), ("east-1", "west-1"))]
        for at_ns in (2 * S, 3 * S, 4 * S)
    }
    begin_ns = testbed.changing.begin()

    def burst() -> None:
        for at_ns, flows in bursts.items():
            time.sleep((begin_ns + at_ns - BEFORE_NS - time.monotonic_ns()) / 1e9)
            for _ in range(BURST):
                for each in flows:
                    each.send(FULL_BYTES)

    beside = threading.Thread(target=burst)
    beside.start()
    times_ns = set(range(spacing_ns, END_NS, spacing_ns))
    for at_ns in (*PHASES,)[1:]:
        times_ns.update(range(at_ns - 1 * MS, at_ns + 1 * MS, near_ns))
    planned_ns = sorted(times_ns)
    send_at(flow, (begin_ns + at_ns for at_ns in planned_ns), SMALL_BYTES)
    beside.join()
    time.sleep(0.5)
    record = testbed.changing.end()
    order, sent = flow.arrivals()
    return {
        "changes": [change._asdict() for change in record.changes],
        "clock_error_ns": record.clock_error_ns,
        "order": order,
        "planned": planned_ns,
        "sent": [_since(each, record) for each in sent],
        "bursts": {
            at_ns // S: [[_since(each, record) for each in flow.arrivals()[1]] for flow in flows]
            for at_ns, flows in bursts.items()
        },
    }


def _since(sent: Sent, record: CourseRecord) -> list[int | None]:
    arrived_ns = None if sent.arrived_ns is None else sent.arrived_ns - record.begin_ns
    return [sent.sent_ns - record.begin_ns, arrived_ns]


def rtt_ms(testbed: RunningTestbed) -> float:
    """The shortest RTT of some echoes: one may be kept waiting, and none is early."""
    echoes: PingResult = testbed.stacks.echoes("east-0", "west-0", 5)
    return echoes.shortest_ms


if __name__ == "__main__":
    with bring_up(network(), substrate="kernel", source="changing links") as up:
        found = {
            "calibrated": [
                {**asdict(link), **link.in_columns(), "within": link.within_tolerance} for link in calibrate(up)
            ],
            "probed": probed(up, spacing_ns=parse_duration_ns("5ms"), near_ns=parse_duration_ns("50us")),
            "rtt_afterwards_ms": rtt_ms(up),
        }
    print(json.dumps(found))
