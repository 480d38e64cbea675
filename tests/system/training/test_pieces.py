"""Rings whose pieces have a size of the user's take as long in virtual time as simulated, and send the same data."""

from pathlib import Path

from tests.system.training.replicas_of_three_datacenters import (
    GRADIENT_BYTES,
    ITERATIONS,
    experiment,
    hold_against_simulation,
)


def test_large_and_small_pieces_take_as_long_and_send_as_much_as_simulated(tmp_path: Path) -> None:
    document = experiment("ring", {"large": {"piece": "1MiB"}, "small": {"piece": "64KiB"}})
    # Three hops cross the WAN, with six segments of a quarter of the data.
    hold_against_simulation(document, ITERATIONS * 3 * 6 / 4 * GRADIENT_BYTES, tmp_path)
