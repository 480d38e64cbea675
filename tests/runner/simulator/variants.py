"""Figures that tests read from simulations."""

from wanbed.runner.simulator.simulation import KIND_CODES, Simulation


def all_reduces_ns(simulation: Simulation) -> list[int]:
    """Return the duration of each all-reduce from the time at which its replica was ready."""
    spans = simulation.spans
    sums = spans.kind == KIND_CODES["all_reduce"]
    return [int(each) for each in spans.end_ns[sums] - spans.start_ns[sums]]
