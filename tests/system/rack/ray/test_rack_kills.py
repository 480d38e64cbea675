"""A run over a rack of which one process is killed: nothing is left, one line says what happened, and it goes on.

Each victim at one moment; ``tests/bench/bench_rack_kills.py`` has ten of each.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ray.kills import VICTIMS, KillingGround, killing_ground

# The witness of a rack over Ray is test_rack_on_ray.py.
pytestmark = pytest.mark.soak

MOMENT = 0


@pytest.fixture(scope="module")
def ground() -> Iterator[KillingGround]:
    with killing_ground() as made:
        yield made


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_run_of_which_a_process_is_killed_leaves_nothing_and_goes_on(
    ground: KillingGround, victim: str, tmp_path: Path
) -> None:
    assert ground.kill(victim, MOMENT, tmp_path).clean_s < 30
