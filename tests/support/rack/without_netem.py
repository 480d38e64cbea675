"""Machines that shape trunks only, on kernels without netem: HTB's rates are real, and node pairs have no leaves.

So latencies, rates of node pairs, losses and outages do not apply, but all that is configured by the rate of a trunk.
"""

from typing import Any

from wanbed.testbed.kernel import port_shape
from wanbed.testbed.kernel.port_shape import PortShape
from wanbed.testbed.rack.machine import facts
from wanbed.testbed.rack.machine.machine import Machine


def leave_netem_out() -> None:
    """Have ports of this process shaped without netem."""
    shape: Any = port_shape._shape

    def of_trunk(trunks: Any, leaves: Any, program: bytes, pair: Any = None) -> PortShape:
        shaped: PortShape = shape(trunks, dict.fromkeys(leaves), program)
        return shaped

    port_shape._shape = of_trunk
    facts._missing = list


class TrunkMachine(Machine):
    """A machine of a rack whose ports have no netem."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        leave_netem_out()
        super().__init__(*arguments, **options)
