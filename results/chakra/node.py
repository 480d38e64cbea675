"""The nodes of a Chakra execution trace as plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

AttributeValue = bool | int | float | str

DURATION_NS = "wanbed_duration_ns"
"""The exact duration of a computation, beside the format's whole microseconds."""
KIND, MICROBATCH = "wanbed_kind", "wanbed_microbatch"
"""The kind and the microbatch of the span that a node was made from."""
INVOLVED_DIMENSIONS = "involved_dim"
"""Which dimensions of a network a collective goes over, in traces of ASTRA-sim's: a list, here whether it has all."""


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
    ``attributes`` has the values of single ones, and of ``INVOLVED_DIMENSIONS``; lists and bytes are left out.
    ``input_values`` is the text that a metadata node holds, empty for other types.
    """

    id: int
    name: str
    type: int
    control_dependencies: tuple[int, ...] = ()
    data_dependencies: tuple[int, ...] = ()
    start_us: int = 0
    duration_us: int = 0
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    input_values: str = ""

    @property
    def dependencies(self) -> set[int]:
        """The ids of all nodes that it depends on."""
        return {*self.control_dependencies, *self.data_dependencies}
