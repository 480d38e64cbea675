"""List the machines of the cluster that this process drives."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from wanbed.ground.shown_text import one_line, shortened
from wanbed.runner.rack.host_placement import Node, in_order


def read_nodes() -> list[Node]:
    """Return the machines that are part of the cluster now, by name."""
    import ray  # noqa: PLC0415

    return nodes_of(ray.nodes())


def nodes_of(listed: Sequence[Mapping[str, Any]]) -> list[Node]:
    """Return the machines that are alive among those that Ray lists, by name.

    A machine's name is the one that ``ray start`` was given, or else its hostname; its address if another machine has
    the same name. Whatever characters it was given, its name can be shown.
    """
    alive = [entry for entry in listed if entry.get("Alive")]
    names = [_given_name(entry) for entry in alive]
    shared = {name for name, count in Counter(names).items() if count > 1}
    return in_order(
        [
            Node(
                name=str(entry["NodeManagerAddress"]) if name in shared else name,
                node_id=str(entry["NodeID"]),
                address=str(entry["NodeManagerAddress"]),
                labels=dict(entry.get("Labels") or {}),
                cpus=float(entry.get("Resources", {}).get("CPU", 0)),
                gpus=float(entry.get("Resources", {}).get("GPU", 0)),
                port=int(entry.get("NodeManagerPort") or 0),
            )
            for name, entry in zip(names, alive, strict=True)
        ]
    )


def _given_name(entry: Mapping[str, Any]) -> str:
    given, address = entry.get("NodeName"), entry["NodeManagerAddress"]
    name = given if given not in {None, "", address} else entry.get("NodeManagerHostname") or address
    return shortened(one_line(str(name)))
