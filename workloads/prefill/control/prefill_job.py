"""The progress of a request that was taken in."""

from dataclasses import dataclass

from workloads.prefill.control.outcome import RequestRecord
from workloads.prefill.control.prefill_group import PrefillGroup
from workloads.prefill.control.prompt_chunks import Chunk


@dataclass(slots=True)
class PrefillJob:
    """A request that was taken in, until its pieces are done and its KV cache has moved, in whatever order."""

    record: RequestRecord
    group: PrefillGroup
    chunks: tuple[Chunk, ...]
    pieces_left: int
    moved: bool = False
