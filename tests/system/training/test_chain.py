"""Reduce and broadcast take as long in virtual time as the simulator says, and send the data once each."""

from pathlib import Path

from tests.system.training.replicas_of_three_datacenters import (
    GRADIENT_BYTES,
    ITERATIONS,
    experiment,
    hold_against_simulation,
)


def test_a_chain_takes_as_long_and_sends_as_much_as_simulated(tmp_path: Path) -> None:
    document = experiment("chain", {"at once": {}, "many connections": {"connections": 4}})
    # From the second replica both cross the WAN to the third and on to the last; only the reduce does to the first.
    hold_against_simulation(document, ITERATIONS * (2 + 2 + 1) * GRADIENT_BYTES, tmp_path)
