"""The protobuf messages of the nodes of a Chakra execution trace."""

from typing import Any

from wanbed.results.chakra.definition import message_class
from wanbed.results.chakra.node import (
    DURATION_NS,
    INVOLVED_DIMENSIONS,
    KIND,
    MICROBATCH,
    AttributeValue,
    ChakraNode,
    NodeType,
)

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
        input_values=message.inputs.values if message.type == NodeType.METADATA_NODE else "",
        attributes=_attributes(message.attr),
    )


def _attributes(messages: Any) -> dict[str, AttributeValue]:
    found: dict[str, AttributeValue] = {}
    for message in messages:
        which = message.WhichOneof("value")
        value: Any = None if which is None else getattr(message, which)
        if isinstance(value, bool | int | float | str):
            found[message.name] = value
        elif message.name == INVOLVED_DIMENSIONS and which == "bool_list":
            found[message.name] = all(value.values)
    return found
