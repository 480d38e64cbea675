"""Change the nodes of a Chakra trace: their ids, dependencies, durations and attributes; or the bytes."""

from dataclasses import replace
from random import Random
from typing import Any

from tests.reliability.fuzz.mutations.of_bytes import damaged_bytes
from tests.reliability.fuzz.mutations.wrong_values import TEXTS
from wanbed.results.chakra.node import ChakraNode, NodeType
from wanbed.results.chakra.rank_file import rank_bytes, read_rank

_WHOLE = (0, 1, -1, 2, 7, 2**31 - 1, 2**32 - 1, 2**63 - 1)
_ATTRIBUTES: tuple[Any, ...] = (*_WHOLE, True, False, "no", "yes", "1e3", 0.5, float("nan"), float("inf"), *TEXTS)
_NAMES = ("is_cpu_op", "comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag", "pg_name", "involved_dim", "kind")


def damaged_chakra(data: bytes, draw: Random) -> bytes:
    """Return the file of a rank with one to three changes of its nodes, or of its bytes."""
    if draw.random() < 0.3:
        return damaged_bytes(data, draw)
    _, nodes = read_rank(data)
    for _ in range(draw.choice((1, 1, 2, 3))):
        nodes = _changed(nodes, draw)
    try:
        return rank_bytes(nodes)
    except (ValueError, TypeError, KeyError):
        # The format has no place for such a value.
        return damaged_bytes(data, draw)


def _changed(nodes: list[ChakraNode], draw: Random) -> list[ChakraNode]:
    if not nodes:
        return nodes
    place = draw.randrange(len(nodes))
    node = nodes[place]
    attributes = dict(node.attributes)
    name = draw.choice((*attributes, *_NAMES))
    ids = tuple(draw.choice((*_WHOLE, *(each.id for each in nodes))) for _ in range(draw.randint(1, 3)))
    changed = draw.choice(
        (
            [],
            [node, node],
            [replace(node, id=ids[0])],
            [replace(node, name=draw.choice(TEXTS))],
            [replace(node, type=draw.choice(list(NodeType)))],
            [replace(node, data_dependencies=ids)],
            [replace(node, control_dependencies=ids)],
            [replace(node, duration_us=draw.choice(_WHOLE))],
            [replace(node, attributes={**attributes, name: draw.choice(_ATTRIBUTES)})],
            [replace(node, attributes={key: value for key, value in attributes.items() if key != name})],
        )
    )
    return [*nodes[:place], *changed, *nodes[place + 1 :]]
