"""Kill a process of a run over a rack: a cluster of two machines that namespaces play."""

from pathlib import Path

from tests.reliability.kills.attempts import Verdict
from tests.reliability.kills.disturbances import Disturbance
from tests.support.ray.kills import KillingGround


def attempt_on_rack(disturbance: Disturbance, ground: KillingGround, runs: Path) -> Verdict:
    """Kill, go on with ``--resume``, and return what followed; ``runs`` is an empty folder."""
    try:
        killed = ground.kill(disturbance.whom, disturbance.number, runs)
    except AssertionError as fault:
        return Verdict(True, 0, 0, None, None, None, (str(fault),))
    status = killed.status if killed.status >= 0 else 128 - killed.status
    return Verdict(True, status, 0, None if killed.trials_before is None else True, True, None, ())
