"""The progress of an admitted request."""

from dataclasses import dataclass

from workloads.prefill.control.outcome import RequestRecord
from workloads.prefill.control.prefill_group import PrefillGroup
from workloads.prefill.control.prompt_chunks import Chunk


@dataclass(slots=True)
class PrefillJob:
    """An admitted request, kept until all its pieces are done and its KV cache has moved. Either may happen first."""

    record: RequestRecord
    group: PrefillGroup
    chunks: tuple[Chunk, ...]
    pieces_left: int
    moved: bool = False
