"""A prefill group: GPUs of one DC that prefill together, each with one stage of the model and a memory ledger."""

from dataclasses import dataclass

from wanbed.workloads.bubbletea.group_timeline import ChunkTimes, GroupTimeline, PlannedPrefill
from wanbed.workloads.bubbletea.messages import Piece, QueuePiece
from wanbed.workloads.bubbletea.prefill_settings import PrefillSettings
from wanbed.workloads.bubbletea.request import Reason
from wanbed.workloads.inference.inference_model import InferenceModel


@dataclass(frozen=True)
class SharedGpuMemory:
    """A GPU's total memory and training's peak use of it. Raises ValueError naming the field."""

    total_bytes: int
    training_bytes: int

    def __post_init__(self) -> None:
        if self.training_bytes < 0:
            raise ValueError(f"training_bytes: {self.training_bytes} is negative")
        if self.total_bytes < self.training_bytes:
            raise ValueError(f"total_bytes: {self.total_bytes} is less than training takes, {self.training_bytes}")


class MemoryLedger:
    """Reserves in advance all memory that a request needs on this GPU. Reservations are released in parts.

    ``resident_bytes`` are occupied permanently: the stage's weights and the working space of one chunk. Raises
    ValueError if they do not fit beside training.
    """

    def __init__(self, memory: SharedGpuMemory, resident_bytes: int) -> None:
        self._memory = memory
        self.room_bytes = self.largest_bytes = memory.total_bytes - memory.training_bytes - resident_bytes
        """``room_bytes`` is free now. ``largest_bytes`` is free when nothing is reserved: nothing larger ever fits."""
        if self.room_bytes < 0:
            raise ValueError(
                f"memory: {resident_bytes} bytes of weights and working space do not fit beside the "
                f"{memory.training_bytes} that training takes of {memory.total_bytes}: take a deeper pipeline"
            )
        self._reserved: dict[int, int] = {}
        self.peak_bytes = self.used_bytes
        """The largest value of ``used_bytes`` so far."""

    @property
    def used_bytes(self) -> int:
        """The bytes of training, resident bytes and reserved bytes together."""
        return self._memory.total_bytes - self.room_bytes

    def reserve(self, request: int, size_bytes: int) -> None:
        """Reserve ``size_bytes`` for a request. Raises ValueError if fewer bytes are free."""
        if size_bytes > self.room_bytes:
            raise ValueError(f"request {request}: {size_bytes} bytes where {self.room_bytes} are free")
        self._reserved[request] = self._reserved.get(request, 0) + size_bytes
        self.room_bytes -= size_bytes
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)

    def release(self, request: int, size_bytes: int) -> None:
        """Release a part of a reservation. Raises ValueError if the request has reserved less."""
        left_bytes = self._reserved.get(request, 0) - size_bytes
        if left_bytes < 0:
            raise ValueError(f"request {request}: gives back {size_bytes} bytes, {-left_bytes} more than it holds")
        self._reserved[request] = left_bytes
        self.room_bytes += size_bytes

    def release_all(self, request: int) -> None:
        """Release all that the request has reserved on this GPU."""
        self.room_bytes += self._reserved.pop(request, 0)


@dataclass(frozen=True)
class GroupGpus:
    """The GPUs of a group in the order of its stages, and the memory of each.

    ``pooled``: the GPUs do not train; they serve off-loaded requests.
    """

    gpus: tuple[int, ...]
    memories: tuple[SharedGpuMemory, ...]
    pooled: bool = False


class PrefillGroup:
    """One group's timeline and memory. Raises ValueError naming a GPU whose memory does not hold the weights."""

    def __init__(
        self, number: int, group: GroupGpus, model: InferenceModel, times: ChunkTimes, settings: PrefillSettings
    ) -> None:
        self.number = number
        self.gpus = group.gpus
        self.layers = model.stage_layers(len(group.gpus))
        self._model = model
        self._last = len(group.gpus) - 1
        self.timeline = GroupTimeline(self.layers, times, settings.dispatch_ns)
        self.ledgers: list[MemoryLedger] = []
        for stage, (gpu, memory) in enumerate(zip(group.gpus, group.memories, strict=True)):
            weights = model.weight_bytes(self.layers[stage], embedding=stage == 0, head=stage == self._last)
            try:
                self.ledgers.append(MemoryLedger(memory, weights + working_bytes(model, settings.chunk_tokens)))
            except ValueError as fault:
                raise ValueError(f"gpu {gpu}: {fault}") from None

    def request_bytes(self, stage: int, prompt_tokens: int) -> int:
        """Return the largest number of bytes that a request may occupy on a stage's GPU at one time.

        That is its KV cache, plus the activations of all chunks, which may all be waiting to be computed or sent.
        """
        boundaries = (stage > 0) + (stage < self._last)
        activations = boundaries * self._model.activation_bytes(prompt_tokens)
        return self._model.kv_bytes(self.layers[stage], prompt_tokens) + activations

    def memory_reason(self, prompt_tokens: int) -> Reason | None:
        """Return why the request does not fit into this group's memory, None if it fits."""
        reason = None
        for stage, ledger in enumerate(self.ledgers):
            size_bytes = self.request_bytes(stage, prompt_tokens)
            if size_bytes > ledger.largest_bytes:
                return Reason.NEVER_FITS
            if size_bytes > ledger.room_bytes:
                reason = Reason.MEMORY
        return reason

    def take_in(self, now_ns: int, request: int, prompt_tokens: int, planned: PlannedPrefill) -> list[QueuePiece]:
        """Reserve the memory and commit the plan. Return the commands for the GPUs."""
        for stage, ledger in enumerate(self.ledgers):
            ledger.reserve(request, self.request_bytes(stage, prompt_tokens))
        self.timeline.commit(now_ns, request, planned)
        last = len(planned.chunks) - 1
        return [
            QueuePiece(
                gpu,
                Piece(
                    request,
                    stage,
                    number,
                    chunk.tokens,
                    chunk.prior_tokens,
                    self.layers[stage],
                    number == last,
                    prompt_tokens,
                ),
            )
            for number, chunk in enumerate(planned.chunks)
            for stage, gpu in enumerate(self.gpus)
        ]

    def activation_used(self, request: int, stage: int, activation_bytes: int) -> None:
        """Free a chunk's input or output, which the stage does not need any more."""
        self.ledgers[stage].release(request, activation_bytes)

    def kv_moved(self, request: int) -> None:
        """Free all memory of the request on this group's GPUs."""
        for ledger in self.ledgers:
            ledger.release_all(request)


def working_bytes(model: InferenceModel, tokens: int) -> int:
    """Return the working bytes of a layer for a chunk of ``tokens``: input, output, and the two products of SwiGLU."""
    return 2 * model.activation_bytes(tokens) + 2 * tokens * model.feed_forward * model.bytes_per_element
