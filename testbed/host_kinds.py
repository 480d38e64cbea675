"""Choose the kind of host that a testbed has."""

from collections.abc import Callable, Mapping

from wanbed.testbed.hosts.emulated_hosts import EmulatedNetwork
from wanbed.testbed.hosts.host import HostNetwork
from wanbed.testbed.kernel.inside import in_virtual_time
from wanbed.testbed.virtual_time.light_hosts import LightNetwork

HOST_KINDS: Mapping[str, Callable[[], HostNetwork]] = {
    "real": EmulatedNetwork,
    "virtual": LightNetwork,
}
"""The network class for each clock."""


def host_network() -> HostNetwork:
    """Return a network, without hosts yet, of the kind that fits the clock of this kernel."""
    return HOST_KINDS["virtual" if in_virtual_time() else "real"]()
