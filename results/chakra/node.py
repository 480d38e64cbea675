"""The nodes of a Chakra execution trace as plain values, and their protobuf messages."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from results.chakra.definition import message_class

AttributeValue = bool | int | float | str

DURATION_NS = "wanbed_duration_ns"
"""The exact duration of a computation, beside the format's whole microseconds."""
KIND, MICROBATCH = "wanbed_kind", "wanbed_microbatch"
"""The kind and the microbatch of the span that a node was made from."""

_FIELDS = {
    "is_cpu_op": "bool_val",
    "num_ops": "int64_val",
    "tensor_size": "uint64_val",
    "comm_type": "int64_val",
    "comm_size": "int64_val",
    "comm_src": "int32_val",
    "comm_dst": "int32_val",
    "comm_tag": "int32_val",
    "pg_name": "string_val",
    DURATION_NS: "uint64_val",
    KIND: "string_val",
    MICROBATCH: "int32_val",
}
"""The field that holds each attribute. Other programs read no other field for an attribute of that name."""


class NodeType(IntEnum):
    """Number the types of nodes as the format does."""

    INVALID_NODE = 0
    METADATA_NODE = 1
    MEM_LOAD_NODE = 2
    MEM_STORE_NODE = 3
    COMP_NODE = 4
    COMM_SEND_NODE = 5
    COMM_RECV_NODE = 6
    COMM_COLL_NODE = 7


class CollectiveType(IntEnum):
    """Number the collectives as the format does, in the attribute ``comm_type`` of a ``COMM_COLL_NODE``."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9


@dataclass(frozen=True)
class ChakraNode:
    """One node of one rank's trace.

    ``type`` is a ``NodeType``, or another number in a file of a later version. Times are whole microseconds.
    ``attributes`` has the values of single ones; lists and bytes are left out.
    """

    id: int
    name: str
    type: int
    control_dependencies: tuple[int, ...] = ()
    data_dependencies: tuple[int, ...] = ()
    start_us: int = 0
    duration_us: int = 0
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)

    @property
    def dependencies(self) -> set[int]:
        """The ids of all nodes that it depends on."""
        return {*self.control_dependencies, *self.data_dependencies}


def node_message(node: ChakraNode) -> Any:
    """Return the protobuf message of a node. Its attributes must be ones that wanbed writes."""
    message = message_class("Node")(
        id=node.id,
        name=node.name,
        type=node.type,
        ctrl_deps=node.control_dependencies,
        data_deps=node.data_dependencies,
        start_time_micros=node.start_us,
        duration_micros=node.duration_us,
    )
    for name, value in node.attributes.items():
        message.attr.add(name=name, **{_FIELDS[name]: value})
    return message


def node_of(message: Any) -> ChakraNode:
    """Return the node of a protobuf message."""
    return ChakraNode(
        id=message.id,
        name=message.name,
        type=message.type,
        control_dependencies=tuple(message.ctrl_deps),
        data_dependencies=tuple(message.data_deps),
        start_us=message.start_time_micros,
        duration_us=message.duration_micros,
        attributes=_attributes(message.attr),
    )


def _attributes(messages: Any) -> dict[str, AttributeValue]:
    found: dict[str, AttributeValue] = {}
    for message in messages:
        which = message.WhichOneof("value")
        value = None if which is None else getattr(message, which)
        if isinstance(value, bool | int | float | str):
            found[message.name] = value
    return found
