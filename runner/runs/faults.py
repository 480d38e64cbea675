"""Map the expected errors to exit statuses. A command reports each of them in one line."""

from wanbed.ground.errors import WanbedError

DONE = 0
OUTSIDE_TOLERANCE = 1
REGRESSED = 1
BEYOND_LIMIT = 1
BAD_INPUT = 2
NOT_COMPARABLE = 3
NO_DATA = 4
MACHINE_LACKS = 5


class TrialError(WanbedError):
    """Raised if a trial did not finish. The message is one line with the cause."""


STATUS = {
    "wanbed.ground.errors.InputError": BAD_INPUT,
    "wanbed.results.records.run_store.RunError": BAD_INPUT,
    "wanbed.results.records.run_store.LostTrialError": NO_DATA,
    "wanbed.results.records.span_log.SpanLogError": NO_DATA,
    "wanbed.ground.errors.SimulationError": BAD_INPUT,
    "wanbed.ground.errors.MissingError": MACHINE_LACKS,
    "wanbed.ground.compiled_core.core_build.CompilerError": MACHINE_LACKS,
    "wanbed.ground.compiled_core.core_build.CompileError": NO_DATA,
    "wanbed.runner.resolve.dilation.CapacityError": MACHINE_LACKS,
    "wanbed.runner.runs.faults.TrialError": NO_DATA,
    "wanbed.testbed.hosts.ping.MeasurementError": NO_DATA,
    "wanbed.testbed.kernel.killed.KilledError": NO_DATA,
    "wanbed.testbed.kernel.namespace.NamespaceEndedError": NO_DATA,
    "wanbed.testbed.substrate.substrate.SubstrateError": NO_DATA,
    "wanbed.testbed.kernel.qdiscs.ReadBackError": NO_DATA,
    "wanbed.testbed.claims.cleaning.CleaningError": NO_DATA,
    "wanbed.testbed.rack.machine_handle.MachineLostError": NO_DATA,
    "wanbed.testbed.virtual_time.guest.GuestError": NO_DATA,
    "wanbed.testbed.virtual_time.light_hosts.ServerEndedError": NO_DATA,
}
"""The expected errors by name, since importing all of their modules takes longer than many a command."""


def status_of(fault: BaseException) -> int | None:
    """Return the exit status for an expected error; None for any other, a bug of this program or an interrupt."""
    names = (f"{kind.__module__}.{kind.__qualname__}" for kind in type(fault).__mro__)
    return next((STATUS[name] for name in names if name in STATUS), None)
