"""Check the names of hosts and datacenters that a file gives beside those of its topology."""

from collections.abc import Sequence

from wanbed.ground.nearest_name import did_you_mean
from wanbed.ground.strict_model import InputError
from wanbed.results.text import list_text
from wanbed.testbed.network.topology import Topology

_MOST_NAMED = 20


def check_host(topology: Topology, name: str, field: str) -> None:
    """Raise InputError, one line that begins with ``field``, for a host that nobody may name."""
    # Hosts of flows in the background are nobody's to name.
    _check(name, [host.name for host in topology.hosts if host.trains or host.serves], field)


def check_datacenter(topology: Topology, name: str, field: str) -> None:
    """Raise InputError, one line that begins with ``field``, for a datacenter that is not there."""
    _check(name, [each.name for each in topology.datacenters], field)


def _check(name: str, names: Sequence[str], field: str) -> None:
    if name not in names:
        remedy = did_you_mean(name, names, f"there are {list_text(list(names[:_MOST_NAMED]))}")
        raise InputError(f"{field}: {name!r} is none, {remedy}")
