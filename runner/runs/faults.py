"""Map the expected errors to exit statuses. A command reports each of them in one line."""

from ground.strict_model import InputError
from ground.wanbed_error import WanbedError
from results.records.run_store import RunError
from runner.resolve.dilation import CapacityError
from runner.simulator.deadlock import SimulationError
from testbed.claims.cleaning import CleaningError
from testbed.hosts.ping import MeasurementError
from testbed.kernel.gateway_programming import ReadBackError
from testbed.kernel.missing import MissingError
from testbed.substrate.substrate import SubstrateError
from testbed.virtual_time.guest import GuestError

DONE = 0
OUTSIDE_TOLERANCE = 1
REGRESSED = 1
GUEST_STUCK = 1
BAD_INPUT = 2
NOT_COMPARABLE = 3
NO_DATA = 4
MACHINE_LACKS = 5


class TrialError(WanbedError):
    """Raised if a trial did not finish. The message is one line with the cause."""


STATUS: tuple[tuple[type[Exception], int], ...] = (
    (InputError, BAD_INPUT),
    (RunError, BAD_INPUT),
    (SimulationError, BAD_INPUT),
    (MissingError, MACHINE_LACKS),
    (CapacityError, MACHINE_LACKS),
    (TrialError, NO_DATA),
    (MeasurementError, NO_DATA),
    (SubstrateError, NO_DATA),
    (ReadBackError, NO_DATA),
    (CleaningError, NO_DATA),
    (GuestError, GUEST_STUCK),
)

FORESEEN = tuple(kind for kind, _ in STATUS)
"""Errors that end a command with one line. Any other error is a bug of this program and keeps its traceback."""
