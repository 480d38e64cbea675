"""Read and write the Chakra execution trace of one rank: its messages, each preceded by its length as a varint.

The classes of the messages are made from ``et_def.proto``, as MLCommons publishes it, when this module is imported. So
no generated code has to fit the installed protobuf, and the published definition beside this module is the only source.
Its licence is in ``LICENSE`` there.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from wanbed.results.chakra.node import (
    DURATION_NS,
    INVOLVED_DIMENSIONS,
    KIND,
    MICROBATCH,
    AttributeValue,
    ChakraNode,
    NodeType,
)

_TOKENS = re.compile(r'"[^"]*"|\w+|[{}=;]')

_COMMENT = re.compile(r"//[^\n]*")

_FIELD_TYPES = descriptor_pb2.FieldDescriptorProto.Type

_SCALARS = frozenset(_FIELD_TYPES.keys())

_REPEATED = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED

_SINGLE = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL


def definition_text() -> str:
    """Return the published definition."""
    return files("wanbed.results.chakra").joinpath("et_def.proto").read_text(encoding="utf-8")


def file_descriptor(text: str) -> Any:
    """Return the descriptor of a definition in proto3 that has messages, enumerations and ``oneof`` only."""
    tokens = iter(_TOKENS.findall(_COMMENT.sub("", text)))
    described = descriptor_pb2.FileDescriptorProto(name="et_def.proto")
    for token in tokens:
        match token:
            case "syntax":
                described.syntax = _value(tokens).strip('"')
            case "package":
                described.package = next(tokens)
            case "enum":
                enumeration = described.enum_type.add(name=next(tokens))
                for name in _block(tokens):
                    enumeration.value.add(name=name, number=int(_value(tokens)))
            case "message":
                _read_message(tokens, described)
    enumerations = {enumeration.name for enumeration in described.enum_type}
    for message in described.message_type:
        for field in message.field:
            if field.type_name in enumerations:
                field.type = _FIELD_TYPES.Value("TYPE_ENUM")
            if field.type_name:
                field.type_name = f".{described.package}.{field.type_name}"
    return described


def _read_message(tokens: Iterator[str], described: Any) -> None:
    message = described.message_type.add(name=next(tokens))
    for word in _block(tokens):
        if word == "oneof":
            message.oneof_decl.add(name=next(tokens))
            for kind in _block(tokens):
                _read_field(tokens, message, kind).oneof_index = len(message.oneof_decl) - 1
        elif word == "repeated":
            _read_field(tokens, message, next(tokens)).label = _REPEATED
        else:
            _read_field(tokens, message, word)


def _read_field(tokens: Iterator[str], message: Any, kind: str) -> Any:
    field = message.field.add(name=next(tokens), number=int(_value(tokens)), label=_SINGLE)
    scalar = f"TYPE_{kind.upper()}"
    if scalar in _SCALARS:
        field.type = _FIELD_TYPES.Value(scalar)
    else:
        field.type, field.type_name = _FIELD_TYPES.Value("TYPE_MESSAGE"), kind
    return field


def _block(tokens: Iterator[str]) -> Iterator[str]:
    """Yield the first token of each statement of a block in braces, until its end."""
    assert next(tokens) == "{"
    for word in tokens:
        if word == "}":
            return
        if word != ";":
            yield word


def _value(tokens: Iterator[str]) -> str:
    assert next(tokens) == "="
    return next(tokens)


@cache
def message_class(name: str) -> Any:
    """Return the class of a message of the definition, like ``Node``."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"ChakraProtoMsg.{name}"))


@cache
def _pool() -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file_descriptor(definition_text()))
    return pool


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


def _node_of(message: Any) -> ChakraNode:
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


VERSION = "1.0.0"
"""The version of the format that is written."""

_MOST_LENGTH_BYTES = 5
"""The varint of a length below 2 GiB, which is the most that protobuf allows a message."""


class ChakraFileError(ValueError):
    """Raised for a file that is no trace of one rank. The message does not name the file."""


def rank_bytes(nodes: Iterable[ChakraNode]) -> bytes:
    """Return the content of one rank's file: the metadata, then the nodes."""
    messages = [message_class("GlobalMetadata")(version=VERSION), *map(node_message, nodes)]
    return b"".join(_framed(message.SerializeToString()) for message in messages)


def read_rank(content: bytes) -> tuple[str, list[ChakraNode]]:
    """Return the version and the nodes of a file with that content. Raise ChakraFileError if it is no such file."""
    messages = _messages(content)
    first = next(messages, None)
    if first is None:
        raise ChakraFileError("it is empty, where metadata and nodes are expected")
    try:
        metadata = message_class("GlobalMetadata").FromString(first)
    except DecodeError:
        raise ChakraFileError("its first message is no metadata of a Chakra trace") from None
    return metadata.version, [_node(number, message) for number, message in enumerate(messages, start=1)]


def _framed(message: bytes) -> bytes:
    length, rest = bytearray(), len(message)
    while rest >= 0x80:
        length.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*length, rest]) + message


def _messages(content: bytes) -> Iterator[bytes]:
    """Yield the messages of a file. Raise ChakraFileError where it ends inside one."""
    position = 0
    while position < len(content):
        begin, length = position, 0
        for index in range(_MOST_LENGTH_BYTES):
            if position == len(content):
                raise ChakraFileError(f"it ends at byte {begin}, in the length of a message: it is cut off")
            byte = content[position]
            position += 1
            length |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                break
        else:
            raise ChakraFileError(f"no length of a message is at byte {begin}")
        if length > len(content) - position:
            raise ChakraFileError(
                f"it ends inside the message at byte {begin}, which has {length} bytes: it is cut off"
            )
        yield content[position : position + length]
        position += length


def _node(number: int, content: bytes) -> ChakraNode:
    try:
        message: Any = message_class("Node").FromString(content)
    except DecodeError:
        raise ChakraFileError(f"message {number} is no node of a Chakra trace") from None
    return _node_of(message)
