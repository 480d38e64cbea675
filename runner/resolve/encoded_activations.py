"""Resolve the encoding of activations over the WAN: which boundaries, how many bytes, how long a GPU takes for it.

A GPU encodes at the end of the action that makes a message, and decodes at the begin of the action that takes it. So
both are parts of these actions: of a forward that of its activation and that of its input, of a backward, or its input
part, that of the gradient which it makes and of the one which it takes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from wanbed.ground.exclusions import Declared, Exclusion, as_check
from wanbed.runner.experiment.quantities import AUTO
from wanbed.runner.resolve.placement import Placement
from wanbed.runner.resolve.stage_costs import StageCosts
from wanbed.runner.resolve.written_variant import WrittenVariant
from wanbed.workloads.compute.activation_wire import ActivationWire, EncodedBoundaries
from wanbed.workloads.gpt.gpt_config import bytes_per_element
from wanbed.workloads.schedules.pipeline_shape import VirtualStages
from wanbed.workloads.schedules.schedule import Schedule
from wanbed.workloads.synchronization.synchronization import BLOCK

_RESIDUE_BYTES = 4
"""The bytes that error feedback keeps of a number: it is in fp32."""


@dataclass(frozen=True)
class ActivationEncoding:
    """The wire format of activations, the size of a number before it, and a GPU's rates, None where it takes no time.

    Rates are in bytes per second of what is not encoded.
    """

    wire: ActivationWire
    element_bytes: int
    encode_bytes_per_s: int | None
    decode_bytes_per_s: int | None

    def elements(self, size_bytes: int) -> int:
        """Return the numbers of a message of that size."""
        return -(-size_bytes // self.element_bytes)

    def encoded_bytes(self, size_bytes: int) -> int:
        """Return the bytes on the wire of a message of that size."""
        return self.wire.encoded_bytes(self.elements(size_bytes))

    def least(self, work: StageCosts) -> StageCosts:
        """Return costs that are not above those of any placement: no message is larger, and encoding takes no time."""
        sizes = tuple(min(each, self.encoded_bytes(each)) for each in work.activation_bytes)
        return replace(work, activation_bytes=sizes)


@dataclass(frozen=True)
class PlacedEncoding:
    """The boundaries between parts of the model over which a variant encodes what it sends.

    They are those that cross the WAN in any pipeline. So they are the same in all, whose replicas of a stage take as
    long, and learn in the same way.
    """

    encoding: ActivationEncoding
    boundaries: tuple[int, ...]
    layout: VirtualStages

    @property
    def on_wire(self) -> EncodedBoundaries:
        """The boundaries and their wire format, as ranks need them."""
        return EncodedBoundaries(self.encoding.wire, self.boundaries)

    def costs(self, work: StageCosts) -> StageCosts:
        """Return the costs with what is sent encoded."""
        parts = work.virtual
        if parts is None:
            return self._parts(work)
        parts, layout = self._parts(parts), self.layout
        times: dict[str, Any] = {
            name: tuple(
                sum(getattr(parts, name)[layout.number(stage, chunk)] for chunk in range(layout.chunks))
                for stage in range(layout.stages)
            )
            for name in ("forward_ns", "backward_ns", "backward_input_ns")
        }
        return replace(work, **times, activation_bytes=parts.activation_bytes, virtual=parts)

    def _parts(self, parts: StageCosts) -> StageCosts:
        """Return the costs of undivided parts of the model."""
        encoding = self.encoding
        forward, backward, split = list(parts.forward_ns), list(parts.backward_ns), list(parts.backward_input_ns)
        sizes = list(parts.activation_bytes)
        for boundary in self.boundaries:
            size_bytes = parts.activation_bytes[boundary]
            encode_ns = _duration_ns(size_bytes, encoding.encode_bytes_per_s)
            decode_ns = _duration_ns(size_bytes, encoding.decode_bytes_per_s)
            forward[boundary] += encode_ns
            forward[boundary + 1] += decode_ns
            for backwards in (backward, split):
                backwards[boundary] += decode_ns
                backwards[boundary + 1] += encode_ns
            sizes[boundary] = encoding.encoded_bytes(size_bytes)
        return replace(
            parts,
            forward_ns=tuple(forward),
            backward_ns=tuple(backward),
            backward_input_ns=tuple(split),
            activation_bytes=tuple(sizes),
        )


def activation_encoding(written: WrittenVariant) -> ActivationEncoding | None:
    """Return how a variant encodes activations over the WAN, None if they go as they are."""
    asked, precision = written.variant.transport.activation, written.spec.training.precision
    if asked is None or asked.wire == precision:
        return None
    return ActivationEncoding(asked.message_wire, bytes_per_element(precision), *asked.rates)


def placed_encoding(
    encoding: ActivationEncoding | None, placement: Placement, layout: VirtualStages
) -> PlacedEncoding | None:
    """Return the encoding of a placement, None where nothing is encoded."""
    if encoding is None:
        return None
    chains = [placement.chain(pipeline, layout) for pipeline in range(len(placement.pipelines))]
    crossing = {
        boundary
        for chain in chains
        for boundary, (one, other) in enumerate(pairwise(chain))
        if one.datacenter != other.datacenter
    }
    return PlacedEncoding(encoding, tuple(sorted(crossing)), layout) if crossing else None


def residues(placed: PlacedEncoding | None, work: StageCosts, messages: int) -> tuple[int, ...]:
    """Return the bytes that error feedback keeps at each part, of so many messages of an iteration; () without any.

    ``work`` has the sizes of what is not encoded.
    """
    if placed is None or not placed.encoding.wire.error_feedback:
        return ()
    kept = [0] * placed.layout.count
    for boundary in placed.boundaries:
        size_bytes = messages * _RESIDUE_BYTES * placed.encoding.elements(work.activation_bytes[boundary])
        kept[boundary] += size_bytes
        kept[boundary + 1] += size_bytes
    return tuple(kept)


def _duration_ns(size_bytes: int, bytes_per_s: int | None) -> int:
    return 0 if bytes_per_s is None else -(-size_bytes * 10**9 // bytes_per_s)


@as_check
def check_crossing(written: WrittenVariant, placed: PlacedEncoding | None) -> Iterator[Declared]:
    """Raise InputError where a variant whose file places the stages encodes nothing."""
    yield Exclusion(
        f"{written.field}.transport.activation",
        "no two neighbouring stages are in different datacenters, and nothing is encoded inside one",
        "give a placement",
        when=activation_encoding(written) is not None and placed is None and written.variant.placement != AUTO,
    )


@as_check
def check_activation(written: WrittenVariant, schedule: type[Schedule] | None) -> Iterator[Declared]:
    """Raise InputError for what does not go with encoded activations. ``schedule`` is None for torch's own."""
    asked, field, backend = written.variant.transport.activation, written.field, written.spec.compute.backend
    if asked is None:
        return
    here, precision = f"{field}.transport.activation", written.spec.training.precision
    name = written.variant.schedule
    yield Exclusion(
        here,
        f"{name} has no stages, between which activations go",
        when=schedule is not None and schedule.whole_replicas,
    )
    encoding = activation_encoding(written)
    yield Exclusion(
        f"{here}.error_feedback",
        f"{precision} of training.precision goes as it is, and nothing is lost",
        "give another wire",
        when=encoding is None and asked.error_feedback,
    )
    if encoding is None:
        return
    block_bytes = BLOCK * encoding.element_bytes
    yield Exclusion(
        here if encoding.wire.kept is None else f"{here}.kept",
        f"{encoding.wire.name} takes {encoding.wire.encoded_bytes(BLOCK)} bytes where the {precision} of "
        f"training.precision takes {block_bytes}",
        "give a smaller format" if encoding.wire.kept is None else "give a smaller share",
        when=encoding.wire.encoded_bytes(BLOCK) >= block_bytes,
        leave="activation",
    )
    yield Exclusion(
        f"{here}.encode" if asked.encode is not None else f"{here}.decode",
        "the times of compute.from are of whole actions, with what encoding took in that run",
        when=written.measured is not None and asked.rates != (None, None),
    )
    yield Exclusion(
        here,
        f"{backend.title} does not encode what it sends",
        "give kind: replay or torch",
        when=schedule is not None and not backend.encodes,
    )
