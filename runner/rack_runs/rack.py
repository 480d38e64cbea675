"""See to it that every machine of a run has the wanbed of the process that drives it, byte for byte."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from wanbed.ground.errors import MissingError
from wanbed.module_process import FOLDER, PACKAGE
from wanbed.results.text import list_text
from wanbed.runner.rack_runs import on_machine
from wanbed.runner.rack_runs.agents import answer_while_there, on_node
from wanbed.runner.rack_runs.cluster import Cluster, Node, connected, read_nodes
from wanbed.runner.runs.run_folder import Log
from wanbed.testbed.rack.machine.facts import sources_hash
from wanbed.testbed.rack.machine_handle import MachineLostError

_PATIENCE_S = 120.0


@dataclass(frozen=True)
class Rack:
    """The machines of a cluster that this process drives, by name.

    ``sent`` is whether they run the wanbed that this process has sent them, not one that is installed there.
    """

    cluster: Cluster
    nodes: tuple[Node, ...]
    sent: bool

    @property
    def carrying(self) -> tuple[Node, ...]:
        """The machines that may carry hosts."""
        return tuple(node for node in self.nodes if node.carries_hosts)

    def document(self) -> dict[str, Any]:
        """Return the cluster and its machines in plain JSON types, as in manifests."""
        return {
            **self.cluster.document(),
            "sources_sent": self.sent,
            "nodes": [asdict(node) for node in self.nodes],
        }


@contextmanager
def rack_at(address: str, log: Log) -> Iterator[Rack]:
    """Connect to the cluster at ``address``, and have this wanbed run on each machine that may carry hosts.

    A machine that has no wanbed, or another one, is sent this one for as long as this process drives it. Raise what
    ``connected`` raises, and MissingError for a machine that lacks a Python package.
    """
    with connected(address) as cluster:
        rack = Rack(cluster, tuple(read_nodes(log)), sent=False)
        differing = _differing(rack)
        if not differing:
            yield rack
            return
    log(f"{list_text(differing)} {'has' if len(differing) == 1 else 'have'} another wanbed or none: sending this one")
    with TemporaryDirectory(prefix="wanbed-sources-") as folder:
        copy_sources(Path(folder))
        with connected(address, sources=Path(folder)) as cluster:
            rack = Rack(cluster, tuple(read_nodes(log)), sent=True)
            if differing := _differing(rack):
                raise MissingError(
                    f"{list_text(differing)}: this wanbed was sent and is not what runs there: install it there, or "
                    "look into Ray's logs of its runtime_env"
                )
            yield rack


def copy_sources(folder: Path) -> None:
    """Copy wanbed to a folder, without what Python made of it."""
    left_out = shutil.ignore_patterns("__pycache__", "*.pyc", "*.so", "reference")
    shutil.copytree(FOLDER, folder / PACKAGE, ignore=left_out)


def _differing(rack: Rack) -> list[str]:
    """Return the names of machines whose wanbed differs from this one.

    Raise MissingError if it is the same and does not work on one of them, or wants a Python package that one lacks, and
    MachineLostError for a machine that does not answer.
    """
    ours = sources_hash()
    asked = [(node, on_node(on_machine.sources_here, node).remote(rack.sent)) for node in rack.carrying]
    try:
        found = {node.name: answer_while_there(node, reference, _PATIENCE_S) for node, reference in asked}
    except TimeoutError as silent:
        raise MachineLostError(str(silent)) from silent
    faults = [
        f"{name} ({each['fault']})"
        for name, each in found.items()
        if each["fault"] is not None and (rack.sent or each["sources"] in {None, ours})
    ]
    if faults:
        raise MissingError(f"wanbed does not work on {list_text(faults)}: pip install 'wanbed[rack]' there")
    return [name for name, each in found.items() if each["sources"] != ours]
