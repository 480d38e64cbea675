"""Read and write the file of one rank: its messages, each preceded by its length as a varint."""

from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf.message import DecodeError

from wanbed.results.chakra.definition import message_class
from wanbed.results.chakra.node import ChakraNode
from wanbed.results.chakra.node_message import node_message, node_of

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
    return node_of(message)
