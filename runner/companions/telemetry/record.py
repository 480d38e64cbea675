"""Read the counters of links and node pairs in a simulation."""

from collections import defaultdict
from itertools import compress, cycle

import numpy as np
import numpy.typing as npt

from wanbed.results.records.run_store import TrialPart
from wanbed.results.records.schema import BACKGROUND
from wanbed.results.records.trial_columns import TrialCounters
from wanbed.results.records.trial_tables import LINK_TABLE
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.simulator.simulation import Simulation
from wanbed.testbed.network.topology import Topology

SAMPLE_INTERVAL_NS = 100_000_000

MAX_SAMPLES = 1000

MAX_SAMPLE_ROWS = 1_000_000


def simulated(topology: Topology, _: ResolvedVariant, simulation: Simulation) -> TrialPart:
    """Return the counters of a simulated trial."""
    return TrialPart({LINK_TABLE: link_counters(topology, simulation)})


def link_counters(topology: Topology, simulation: Simulation) -> TrialCounters:
    """Return the counters of every directed WAN link, and of every directed node pair that something crossed.

    Links count what training sent; flows in the background have lines of their own.
    They are read at the start, every 100 ms, and at the end; of a long trial, or one of many node pairs, at as many
    evenly spaced times as make ``MAX_SAMPLES``, and ``MAX_SAMPLE_ROWS`` in all.
    """
    home = {host.name: host.datacenter for host in topology.hosts}
    of_part = simulation.traffic_of_part
    crossing = [traffic.sent_by(np.array([traffic.last_ns]))[0] > 0 for traffic in of_part]
    crossed = list(compress(simulation.traffic, cycle(crossing)))
    links = [ends for link in topology.wan for ends, _ in link.directions]
    last = [int(simulation.spans.end_ns.max(initial=0)), *(traffic.last_ns for traffic in compress(of_part, crossing))]
    flows = [flow.sent for flow in simulation.background]
    times_ns = sample_times_ns(max(last), len(links) + len(crossed) + len(flows)) if links else np.zeros(0, np.int64)
    on_link: dict[tuple[str, str], npt.NDArray[np.int64]] = defaultdict(lambda: np.zeros(len(times_ns), np.int64))
    sent_of_part = [np.rint(traffic.sent_by(times_ns)).astype(np.int64) for traffic in compress(of_part, crossing)]
    pairs = []
    for traffic, sent in zip(crossed, cycle(sent_of_part), strict=False):
        pairs.append(sent)
        on_link[home[traffic.source], home[traffic.destination]] += sent
    of_flows = [np.rint(flow.sent_by(times_ns)).astype(np.int64) for flow in flows]
    counts = [*(on_link[link] for link in links), *pairs, *of_flows]
    return TrialCounters(
        times_ns,
        [
            *(("link", *link) for link in links),
            *(("node_pair", traffic.source, traffic.destination) for traffic in crossed),
            *((BACKGROUND, flow.source, flow.destination) for flow in flows),
        ],
        np.array(counts, np.int64).reshape(len(counts), len(times_ns)),
    )


def sample_times_ns(end_ns: int, lines: int) -> npt.NDArray[np.int64]:
    """Return the times at which so many lines of counters are read until ``end_ns``."""
    most = max(2, min(MAX_SAMPLES, MAX_SAMPLE_ROWS // lines))
    if end_ns > (most - 2) * SAMPLE_INTERVAL_NS:
        return np.linspace(0, end_ns, most).round().astype(np.int64)
    return np.array(sorted({*range(0, end_ns, SAMPLE_INTERVAL_NS), end_ns}), np.int64)
