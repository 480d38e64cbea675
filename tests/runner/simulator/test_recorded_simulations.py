"""A simulation gives the spans and the traffic that it gave: no change of a figure passes unseen.

Who changes the simulator's figures on purpose records them anew, as ``tests/support/recorded.py`` says.
"""

from pathlib import Path

import pytest

from tests.support.recorded import check_recorded
from tests.support.simulator.drawn_companions import drawn_beside
from tests.support.simulator.simulated_bytes import drawn, of

# Where nothing is compiled, 148 experiments take minutes.
pytestmark = pytest.mark.timeout(900)

RECORDED = Path(__file__).with_name("recorded_simulations.txt")


def test_drawn_experiments_give_the_spans_and_traffic_that_they_gave() -> None:
    found = {f"schedules {number}": of(drawn(number)) for number in range(40)}
    found |= {f"companions {number}": of(drawn_beside(number)) for number in range(108)}
    check_recorded(RECORDED, found)
