"""The ring as Gloo runs it takes as long in virtual time as the simulator says, and sends what its segments take."""

from pathlib import Path

from tests.system.training.replicas_of_three_datacenters import (
    GRADIENT_BYTES,
    ITERATIONS,
    experiment,
    hold_against_simulation,
)


def test_announced_chunks_take_as_long_and_send_as_much_as_simulated(tmp_path: Path) -> None:
    document = experiment("gloo", {"at once": {}, "many connections": {"connections": 4}})
    # Three hops cross the WAN, with two passes of three quarters of the data.
    hold_against_simulation(document, ITERATIONS * 3 * 2 * GRADIENT_BYTES * 3 / 4, tmp_path)
