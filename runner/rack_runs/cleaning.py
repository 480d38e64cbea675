"""Remove what killed runs left on the machines of a rack."""

from dataclasses import dataclass
from typing import Any

from wanbed.runner.rack_runs import on_machine
from wanbed.runner.rack_runs.agents import answer_of, on_node
from wanbed.runner.rack_runs.rack import rack_at
from wanbed.runner.runs.run_folder import Log
from wanbed.testbed.rack.machine_handle import MachineLostError

_PATIENCE_S = 120.0


@dataclass(frozen=True)
class CleanedMachine:
    """The things removed from a machine and the things in use there.

    ``fault`` is the reason why the machine was not cleaned, None if it was.
    """

    name: str
    cleaned: tuple[dict[str, Any], ...] = ()
    in_use: tuple[dict[str, Any], ...] = ()
    fault: str | None = None


def clean_rack(address: str, log: Log) -> list[CleanedMachine]:
    """Remove the testbeds whose owners are gone from every machine that may carry hosts.

    Raise what ``rack_at`` raises.
    """
    with rack_at(address, log) as rack:
        asked = {node.name: on_node(on_machine.clean_here, node).remote(rack.sent) for node in rack.carrying}
        return [_cleaned(name, reference) for name, reference in asked.items()]


def _cleaned(name: str, reference: Any) -> CleanedMachine:
    try:
        found = answer_of(name, reference, _PATIENCE_S)
    except (MachineLostError, TimeoutError) as silent:
        return CleanedMachine(name, fault=str(silent))
    return CleanedMachine(name, tuple(found["cleaned"]), tuple(found["in_use"]), found["fault"])
