"""Cut the parameters of a stage into fragments, which are synchronised one at a time."""

from itertools import pairwise

from wanbed.workloads.synchronization.wire_format import WireFormat


def cut_fragments(elements: int, fragments: int) -> tuple[tuple[int, int], ...]:
    """Return the first element of each fragment, and the one after its last. Sizes differ by one element at most."""
    return tuple(pairwise(elements * index // fragments for index in range(fragments + 1)))


def fragments_bytes(elements: int, fragments: int, wire: WireFormat) -> tuple[int, ...]:
    """Return the encoded size of each fragment."""
    return tuple(wire.encoded_bytes(end - start) for start, end in cut_fragments(elements, fragments))
