"""Simulate a variant whose ranks replay a trace."""

import numpy as np

from wanbed.results.records.span_columns import TraceSpanColumns
from wanbed.runner.simulator.channels.network import Network
from wanbed.runner.simulator.channels.wan_traffic import wan_traffic
from wanbed.runner.simulator.event_queue import EventQueue
from wanbed.runner.simulator.event_run import run_events
from wanbed.runner.simulator.simulated_spans import ordered_spans, span_order
from wanbed.runner.simulator.simulation import Simulation
from wanbed.runner.simulator.training import Pulse
from wanbed.runner.trainings.trace.resolution.trace_variant import TraceVariant
from wanbed.runner.trainings.trace.simulation.trace_network import TraceNetwork
from wanbed.runner.trainings.trace.simulation.trace_replay import TraceReplay


def simulate_trace(network: Network[TraceVariant], iterations: int, pulse: Pulse | None) -> Simulation:
    """Simulate so many iterations of the trace over the network."""
    events, variant = EventQueue(), network.variant
    over = TraceNetwork(network, variant.trace, events)
    replay = TraceReplay(variant.trace, iterations, over, events, pulse)
    run_events(replay.run, events)
    traffic = wan_traffic(variant, over.crossed(), 1)
    spans = ordered_spans(replay.rows, len(variant.placement.places), 1)
    rows = np.frombuffer(replay.rows, np.int64).reshape(-1, 8)
    tensor = np.frombuffer(replay.tensors, np.int64)[span_order(rows)]
    return Simulation(TraceSpanColumns(**vars(spans), tensor=tensor), traffic, network.connections)
