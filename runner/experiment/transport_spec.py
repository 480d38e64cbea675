"""Define the section ``transport`` of a variant."""

from collections.abc import Iterable
from functools import partial
from operator import eq, not_
from typing import Any, Final, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from wanbed.ground.exclusions import Exclusion
from wanbed.ground.strict_model import StrictModel
from wanbed.ground.units import BytesPerSecond, Fraction
from wanbed.runner.experiment.quantities import (
    AUTO,
    BucketBytes,
    CongestionControl,
    Connections,
    PieceBytes,
    PipelinesPerCell,
    Truth,
    WindowBytes,
)
from wanbed.testbed.network.tcp_settings import DEFAULT_WINDOW_BYTES
from wanbed.workloads.compute.activation_wire import TOPK, ActivationWire
from wanbed.workloads.synchronization.synchronization import BLOCK, WireFormat

OVERLAPS_ALL_REDUCE = False
"""The default of ``all_reduce_overlap``."""
UNTIL_LEFT: Final = "left"
"""The default of ``held_until``."""
INTO_BUFFERS: Final = "buffers"
"""The default of ``receive``."""
BUCKET_BYTES = 25 * 2**20
"""The default of ``bucket``, that of torch's ``DistributedDataParallel``."""


class ActivationSpec(StrictModel):
    """The format in which activations, and their gradients, go from one datacenter to another.

    A GPU encodes a message at the end of the action that makes it, and decodes one at the begin of the action that
    takes it. Nothing is encoded between stages of one datacenter.
    """

    wire: Literal["fp32", "bf16", "fp16", "int8", "fp8", "fp4", "topk"] = Field(
        description="Format of each number, as in [`diloco`](local-updates.md#bytes), or `topk`: of every 1024 numbers "
        "only the largest go, as bf16 with the place of each. That of `training.precision` encodes nothing.",
        examples=["int8"],
    )
    kept: Fraction | None = Field(
        default=None,
        exclude_if=not_,
        description="Share of the numbers that `topk` sends, rounded to whole numbers of every 1024, at least one. "
        "Each takes 4 bytes. Required with `wire: topk`.",
        examples=["1%"],
    )
    error_feedback: Truth = Field(
        default=False,
        exclude_if=not_,
        description="Whether the sender adds what encoding has lost to the next message of the same microbatch, of the "
        "next iteration. It keeps an fp32 number for each number that it sends in an iteration.",
        examples=[True],
    )
    encode: BytesPerSecond | None = Field(
        default=None,
        exclude_if=not_,
        description="Rate at which a GPU encodes, in bytes before encoding, in a replay, a simulation and a plan. "
        "Torch takes as long as it does. Default: encoding takes no time.",
        examples=["500GB/s"],
    )
    decode: BytesPerSecond | None = Field(
        default=None,
        exclude_if=not_,
        description="Rate at which a GPU decodes, in bytes after decoding. Default: that of `encode`.",
        examples=["500GB/s"],
    )

    def exclusions(self) -> Iterable[Exclusion]:
        """Declare what only one of the formats has."""
        return (
            Exclusion("kept", f"{self.wire} sends every number", "give wire: topk", when=self.wire != TOPK),
            Exclusion("error_feedback", "fp32 loses nothing", "give another wire", when=self.wire == "fp32"),
        )

    @model_validator(mode="after")
    def _topk_keeps_some(self) -> "ActivationSpec":
        if self.wire == TOPK and not self.kept:
            raise ValueError("kept: topk needs the share of numbers that it sends, above 0%: write it, like 1%")
        return self

    @property
    def message_wire(self) -> ActivationWire:
        """The wire format of a message."""
        if self.kept is None:
            return ActivationWire(WireFormat(self.wire), error_feedback=self.error_feedback)
        kept = max(1, round(self.kept * BLOCK))
        return ActivationWire(WireFormat.BF16, kept, error_feedback=self.error_feedback)

    @property
    def rates(self) -> tuple[int | None, int | None]:
        """The rates of encoding and of decoding in bytes per second, None where it takes no time."""
        return self.encode, self.encode if self.decode is None else self.decode


class TransportSpec(StrictModel):
    """The TCP transport between two neighbouring stages."""

    model: Literal["auto", "packets", "mean", "ideal"] = Field(
        default="auto",
        description="How a simulation models the transport. `packets` follows each packet of each connection, `mean` "
        "the connections between two hosts by their mean, which is quicker. `auto` is `packets` for trials of up to "
        "400,000 packets, if they can be followed, and `mean` for others. `ideal` has no windows, no slow start and no "
        "headers. An emulation has real TCP, and takes `auto` alone.",
        examples=["mean", "packets", "ideal"],
    )
    connections: Connections = Field(
        default=1,
        description="Number of TCP connections between two hosts. `auto` opens as many as fill the node pair's cap, 64 "
        "at most.",
        examples=[8, "auto"],
    )
    window: WindowBytes = Field(
        default=DEFAULT_WINDOW_BYTES,
        description="What one connection may have in flight, from 4KiB to 511MiB. The default is what Linux 6.18 gives "
        "on a stock Debian, whose buffer is 6 MiB.",
        examples=["512KiB"],
    )
    congestion: CongestionControl = Field(
        default="cubic", description="Congestion control, as Linux calls it.", examples=["bbr"]
    )
    slow_start_after_idle: Truth = Field(
        default=True,
        description="Whether a connection that was idle starts slowly again, as in Linux unless configured otherwise.",
        examples=[False],
    )
    keep_warm: Truth = Field(
        default=False,
        exclude_if=not_,
        description="Whether the ranks themselves keep connections from starting slowly again: each that has sent "
        "nothing for 150 ms sends a frame of 44 bytes. No right on the host is needed for it.",
        examples=[True],
    )
    overlap: Truth = Field(
        default=True,
        exclude_if=bool,
        description="Whether a GPU computes while it sends. With `false` it starts nothing further until the last byte "
        "of its message has left it, as in stacks whose sends block; messages still arrive.",
        examples=[False],
    )
    held_until: Literal["left", "arrival"] = Field(
        default=UNTIL_LEFT,
        exclude_if=partial(eq, UNTIL_LEFT),
        description="With `overlap: false`, until when a GPU that sends starts nothing further. `left`: until the last "
        "byte has left it. `arrival`: until the message has arrived, so that latency occupies the GPU too, as it does "
        "where a kernel on the sender's stream spins for it. Only a simulation has `arrival`.",
        examples=["arrival"],
    )
    receive: Literal["buffers", "blocks"] = Field(
        default=INTO_BUFFERS,
        exclude_if=partial(eq, INTO_BUFFERS),
        description="When a message between two stages is sent. `buffers`: as soon as it is made; it arrives in a "
        "buffer, whatever the receiver's GPU does. `blocks`: only once the receiver has come to the action that needs "
        "it and has told the sender so, which takes the one-way latency; until it has arrived the receiver computes "
        "nothing. Needs a schedule of fixed order. With `overlap: false` both GPUs wait for each other.",
        examples=["blocks"],
    )
    activation: ActivationSpec | None = Field(
        default=None,
        exclude_if=not_,
        description="Format in which activations and their gradients cross the WAN, which changes what is learnt. "
        "Default: in `training.precision`.",
        examples=[{"wire": "int8"}, {"wire": "topk", "kept": "1%"}],
    )
    sharing: Literal["none", "temporal"] = Field(
        default="none",
        description="`temporal`: the pipelines of a DP-cell take turns on a stage boundary that crosses the WAN, and "
        "each transfer uses the node pairs of all of them.",
        examples=["temporal"],
    )
    pipelines_per_cell: PipelinesPerCell = Field(
        default=AUTO,
        description="Number of pipelines of a DP-cell, with `sharing: temporal`. `auto` takes the duration of a "
        "transfer in forwards, rounded up to a divisor of the number of pipelines.",
        examples=["auto"],
    )
    all_reduce: Literal["ring", "hierarchical", "butterfly", "chain", "nccl", "nccl-shared", "gloo"] = Field(
        default="ring",
        description="How the gradients of a stage's replicas are all-reduced. `ring` is wanbed's ring over the same "
        "connections as all other traffic. `hierarchical` sums inside each datacenter; then each replica sums its "
        "part over the WAN with its counterparts. It needs as many replicas in each. `butterfly`: each of k replicas "
        "owns 1/k of the gradients; all send it their parts at once, and it sends the sum back to all, as sharded "
        "parameter servers do. `chain`: a reduce along a chain of the replicas to the first of them, and then a "
        "broadcast from it, as NCCL has both and a central parameter server uses them. `gloo`: the ring as Gloo runs "
        "it, in chunks of up to 1 MiB, two at once, each sent once its receiver has announced that it waits for it. "
        "Where torch computes, Gloo itself sums. `nccl` is NCCL's, between GPUs that torch computes on. Both libraries "
        "open their own sockets and need all replicas in one datacenter. `nccl-shared` is NCCL where replicas on "
        "different hosts may share a real GPU, which NCCL does not promise to support. A simulation treats NCCL's as "
        "the ring.",
        examples=["gloo"],
    )
    all_reduce_overlap: Truth = Field(
        default=OVERLAPS_ALL_REDUCE,
        description="Whether the gradients of a stage's replicas are all-reduced in buckets while the backward of an "
        "iteration's last microbatch computes, as torch's `DistributedDataParallel` does. Otherwise they are "
        "all-reduced as one, after the last computation. Needs `all_reduce: ring`, `hierarchical` or `butterfly`. With "
        "`schedule: diloco`, in a simulation alone, a synchronisation begins so.",
        examples=[True],
    )
    bucket: BucketBytes = Field(
        default=BUCKET_BYTES,
        exclude_if=partial(eq, BUCKET_BYTES),
        description="The most bytes of gradients in a bucket, with `all_reduce_overlap: true`, from 4KiB. All buckets "
        "are equally large. The default is that of torch's `DistributedDataParallel`.",
        examples=["5MiB"],
    )

    piece: PieceBytes = Field(
        default=AUTO,
        exclude_if=partial(eq, AUTO),
        description="The size of the pieces in which replicas pass on what they sum, from 4KiB to 1MiB: a replica has "
        "to have all of a piece before it sends it on. `auto`: 1/256 of a segment, 256KiB to 1MiB, and less where a "
        "segment would have few for several connections. `gloo` has its own.",
        examples=["1MiB"],
    )

    def exclusions(self) -> Iterable[Exclusion]:
        """Declare what only pipelines that share have, and what only overlap has."""
        alone, at_once = self.sharing == "none", "without overlap all gradients are summed at once"
        cells = "only pipelines that share form DP-cells"
        return (
            Exclusion("pipelines_per_cell", cells, "give sharing: temporal", when=alone),
            Exclusion(
                "keep_warm",
                "no connection starts slowly again after a pause",
                "leave it out, or give slow_start_after_idle: true",
                when=self.keep_warm and not self.slow_start_after_idle,
            ),
            Exclusion(
                "held_until",
                "a GPU that computes while it sends is not held",
                "give overlap: false",
                when=self.overlap and self.holds_until_arrival,
            ),
            Exclusion(
                "piece",
                f"{self.all_reduce} has pieces of its own",
                "give all_reduce: ring",
                when=self.piece_bytes is not None and (self.is_gloo or self.is_nccl),
            ),
            Exclusion("bucket", at_once, "give all_reduce_overlap: true", when=not self.sums_in_buckets),
        )

    @model_validator(mode="after")
    def _overlap_has_buckets(self) -> "TransportSpec":
        written = "all_reduce_overlap" in self.model_fields_set
        if self.all_reduce_overlap and not self.has_buckets and written:
            raise ValueError(
                f"all_reduce_overlap: {self.all_reduce} sums all gradients at once, after the backward: give "
                "all_reduce: ring, or all_reduce_overlap: false"
            )
        return self

    @property
    def piece_bytes(self) -> int | None:
        """The size of the pieces in which replicas pass on what they sum, None unless it is given."""
        return None if self.piece == AUTO else self.piece

    @property
    def holds_until_arrival(self) -> bool:
        """True if a GPU whose sends block is held until its message has arrived."""
        return self.held_until != UNTIL_LEFT

    @property
    def receives_into_buffers(self) -> bool:
        """True if messages between stages come into buffers, and do not wait for the receiver's GPU."""
        return self.receive == INTO_BUFFERS

    def sums_over_transport(self, *, on_device: bool) -> bool:
        """Tell whether gradients are summed over the connections of all other traffic, in place of torch's own.

        ``on_device`` is whether torch's collectives can sum what is computed, as Gloo then does itself.
        """
        return not self.is_nccl and not (self.is_gloo and on_device)

    @property
    def is_nccl(self) -> bool:
        """True if NCCL sums the gradients."""
        return self.all_reduce in {"nccl", "nccl-shared"}

    @property
    def is_gloo(self) -> bool:
        """True if gradients are summed as Gloo does it."""
        return self.all_reduce == "gloo"

    @property
    def is_hierarchical(self) -> bool:
        """True if gradients are summed inside each datacenter before they are summed across."""
        return self.all_reduce == "hierarchical"

    @property
    def is_butterfly(self) -> bool:
        """True if each replica owns a part of the gradients, and exchanges it with all others at once."""
        return self.all_reduce == "butterfly"

    @property
    def is_chain(self) -> bool:
        """True if gradients are reduced along a chain to one replica, and broadcast from it."""
        return self.all_reduce == "chain"

    @property
    def has_buckets(self) -> bool:
        """True if gradients may be summed in buckets, beside backwards."""
        return self.all_reduce in {"ring", "hierarchical", "butterfly"}

    @property
    def sums_in_buckets(self) -> bool:
        """True if gradients are summed in buckets, beside backwards: only wanbed's own all-reduces do."""
        return self.all_reduce_overlap and self.has_buckets

    @model_serializer(mode="wrap")
    def _without_an_overlap_that_changes_nothing(self, write: SerializerFunctionWrapHandler) -> Any:
        written = write(self)
        if not self.has_buckets or not (self.all_reduce_overlap or OVERLAPS_ALL_REDUCE):
            del written["all_reduce_overlap"]
        return written
