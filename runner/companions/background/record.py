"""Record what flows in the background have carried in a simulated trial."""

import numpy as np

from wanbed.results.records.run_store import TrialPart
from wanbed.results.records.schema import BackgroundSample
from wanbed.results.records.trial_tables import BACKGROUND_TABLE
from wanbed.runner.companions.telemetry.record import sample_times_ns
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.simulator.simulation import Simulation
from wanbed.testbed.network.topology import Topology


def simulated(_: Topology, __: ResolvedVariant, simulation: Simulation) -> TrialPart:
    """Return what each flow had carried at the start, every 100 ms, and at the end."""
    if not simulation.background:
        return TrialPart()
    end_ns = int(simulation.spans.end_ns.max(initial=0))
    times_ns = sample_times_ns(end_ns, len(simulation.background))
    rows = [
        BackgroundSample(time_ns, flow.name, 0, flow.sent.source, flow.sent.destination, received)
        for flow in simulation.background
        for time_ns, received in zip(
            times_ns.tolist(), np.rint(flow.received.sent_by(times_ns)).astype(np.int64).tolist(), strict=True
        )
    ]
    return TrialPart({BACKGROUND_TABLE: rows})
