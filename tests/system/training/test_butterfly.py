"""A butterfly all-reduce takes as long in virtual time as the simulator says, and sends what its parts take."""

from pathlib import Path
from typing import Any

from tests.system.training.replicas_of_three_datacenters import (
    GRADIENT_BYTES,
    ITERATIONS,
    experiment,
    hold_against_simulation,
)


def test_a_butterfly_takes_as_long_and_sends_as_much_as_simulated(tmp_path: Path) -> None:
    transports: dict[str, dict[str, Any]] = {
        "at once": {},
        "in buckets": {"all_reduce_overlap": True, "bucket": "2MB"},
        "many connections": {"connections": 4},
    }
    # Of the 12 ways between two replicas 10 cross the WAN; each carries a part and a sum.
    hold_against_simulation(experiment("butterfly", transports), ITERATIONS * 10 * 2 * GRADIENT_BYTES / 4, tmp_path)
