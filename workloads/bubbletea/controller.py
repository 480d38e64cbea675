"""Control the prefill of one DC: admit requests, assign them to GPUs, and record the outcome of each.

A request that no group can take yet is held until memory and capacity are available. The controller receives events and
returns commands for GPUs. It reads no clock and holds no connection, so a simulation and a networked process can both
drive it.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from wanbed.workloads.bubbletea.group_timeline import Chunk, ChunkTimes, PlannedPrefill
from wanbed.workloads.bubbletea.messages import BubbleReport, PieceDone, QueuePiece
from wanbed.workloads.bubbletea.prefill_group import GroupGpus, PrefillGroup
from wanbed.workloads.bubbletea.prefill_profile import PrefillProfile
from wanbed.workloads.bubbletea.prefill_settings import FillPolicy, PrefillSettings
from wanbed.workloads.bubbletea.request import Outcome, Reason, Request, RequestRecord, count_outcomes
from wanbed.workloads.inference.inference_model import InferenceModel


class HoldQueue:
    """At most ``limit`` requests in order of arrival. Each waits only as long as it could still meet the SLO."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: dict[int, RequestRecord] = {}
        self._last_starts: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._held)

    @property
    def full(self) -> bool:
        """Return whether no further request may wait."""
        return len(self._held) >= self._limit

    @property
    def first(self) -> RequestRecord | None:
        """The request that has waited longest, None if none waits."""
        return next(iter(self._held.values()), None)

    def add(self, record: RequestRecord, last_start_ns: int) -> None:
        """Hold a request, which misses the SLO if it is admitted after ``last_start_ns``."""
        self._held[record.number] = record
        heappush(self._last_starts, (last_start_ns, record.number))

    def remove(self, record: RequestRecord) -> None:
        """Remove a request from the queue."""
        del self._held[record.number]

    def expired(self, now_ns: int) -> list[RequestRecord]:
        """Remove and return the requests whose last start is before ``now_ns``."""
        gone = []
        while self._last_starts and self._last_starts[0][0] < now_ns:
            record = self._held.pop(heappop(self._last_starts)[1], None)
            if record is not None:
                gone.append(record)
        return gone


@dataclass(frozen=True)
class Admitted:
    """An offer of a group to prefill a prompt. By ``promised_ns`` the KV cache will be at the decode host."""

    group: PrefillGroup
    planned: PlannedPrefill
    promised_ns: int


class _Order:
    """Groups in order of the end of their planned work, in a heap."""

    def __init__(self, groups: Sequence[PrefillGroup]) -> None:
        self._groups = groups
        self._keys = [group.timeline.horizon_ns for group in groups]
        self._heap = sorted((key, place) for place, key in enumerate(self._keys))

    def update(self, place: int) -> None:
        """Update a group's position after its plan has changed."""
        key = self._groups[place].timeline.horizon_ns
        if key != self._keys[place]:
            self._keys[place] = key
            if len(self._heap) > 4 * len(self._keys):
                self._heap = sorted((key, place) for place, key in enumerate(self._keys))
            else:
                heappush(self._heap, (key, place))

    def places(self) -> Generator[int]:
        """Yield the places of the groups, the earliest end first. Close the generator before the next ``update``."""
        taken: list[tuple[int, int]] = []
        last = None
        try:
            while self._heap:
                entry = heappop(self._heap)
                if entry[0] == self._keys[entry[1]] and entry != last:
                    taken.append(entry)
                    last = entry
                    yield entry[1]
        finally:
            for entry in taken:
                heappush(self._heap, entry)


class Admission:
    """Admission to ``groups`` under one SLO.

    A request is admitted only to a group whose planned work fits into its bubbles, where the request's memory can be
    reserved for its whole lifetime, and where its TTFT meets the SLO.
    """

    def __init__(self, groups: Sequence[PrefillGroup], model: InferenceModel, settings: PrefillSettings) -> None:
        self._groups = groups
        self._places = {group.number: place for place, group in enumerate(groups)}
        self._order = _Order(groups)
        self._model = model
        self._settings = settings

    def choose(self, now_ns: int, prompt_tokens: int, due_ns: int) -> Admitted | Reason:
        """Return the earliest offer of the groups whose planned work ends first.

        The settings limit the number of these candidates. If no group takes the request, return the reason that may end
        soonest; ``NEVER_FITS`` only if it applies to every group.
        """
        best: Admitted | None = None
        reasons: set[Reason] = set()
        examined: list[int] = []
        candidates = 0
        order = self._order.places()
        for place in order:
            group = self._groups[place]
            if candidates == self._settings.candidates:
                break
            if best is not None and group.timeline.horizon_ns >= best.planned.end_ns:
                break
            to_beat_ns = due_ns if best is None else best.promised_ns - 1
            offer = self.offer(group, now_ns, prompt_tokens, to_beat_ns)
            examined.append(place)
            candidates += offer is not Reason.NEVER_FITS
            if isinstance(offer, Reason):
                reasons.add(offer)
            else:
                best = offer
        order.close()
        for place in examined:
            self._order.update(place)
        if best is not None:
            return best
        order_of_reasons = (Reason.MEMORY, Reason.FORECAST, Reason.SLO)
        return next((reason for reason in order_of_reasons if reason in reasons), Reason.NEVER_FITS)

    def offer(self, group: PrefillGroup, now_ns: int, prompt_tokens: int, due_ns: int) -> Admitted | Reason:
        """Return the offer of one group, or the reason why it cannot take the request."""
        kv_ns = self.kv_transfer_ns(prompt_tokens)
        reason = group.memory_reason(prompt_tokens)
        if reason is not None:
            return reason
        planned = group.timeline.plan(now_ns, prompt_tokens, due_ns - kv_ns)
        if isinstance(planned, Reason):
            return planned
        return Admitted(group, planned, planned.end_ns + kv_ns)

    def changed(self, group: PrefillGroup) -> None:
        """Update the order after a group has admitted a request or its bubbles have changed."""
        self._order.update(self._places[group.number])

    def kv_transfer_ns(self, prompt_tokens: int) -> int:
        """Return an upper estimate of the KV cache's transfer time: all of it after the prefill's end, on one path."""
        return self._settings.transfer_ns(self._model.kv_bytes(self._model.layers, prompt_tokens))


@dataclass(slots=True)
class PrefillJob:
    """An admitted request, kept until all its pieces are done and its KV cache has moved. Either may happen first."""

    record: RequestRecord
    group: PrefillGroup
    chunks: tuple[Chunk, ...]
    pieces_left: int
    moved: bool = False


Commands = list[QueuePiece]


class PrefillController:
    """The controller of ``datacenter``. No GPU may be in two groups.

    A request is admitted to the bubbles if they can take it, else to the pool if there is one. Otherwise it waits as
    long as it could still meet the SLO, and is then rejected. With the policy ``none`` all requests go to the pool.
    With ``greedy`` no bubbles are predicted, and every GPU counts as always idle.

    Every event method takes the current time and returns the resulting commands. The constructor raises ValueError
    naming the field or GPU if a GPU is in two groups, or if the weights do not fit into a GPU's memory.
    """

    def __init__(
        self,
        datacenter: str,
        groups: Sequence[GroupGpus],
        model: InferenceModel,
        profile: PrefillProfile,
        settings: PrefillSettings,
    ) -> None:
        gpus = [gpu for group in groups for gpu in group.gpus]
        if len(gpus) != len(set(gpus)):
            raise ValueError("groups: a GPU is in two of them, or twice in one")
        self.datacenter = datacenter
        self._settings = settings
        self._times = ChunkTimes(model, profile, settings)
        self.groups = [PrefillGroup(number, group, model, self._times, settings) for number, group in enumerate(groups)]
        pooled = [group for group, gpus in zip(self.groups, groups, strict=True) if gpus.pooled]
        trained = [group for group in self.groups if group not in pooled]
        if settings.policy is FillPolicy.NONE:
            trained = []
        self._at_gpu = {gpu: (group, stage) for group in trained for stage, gpu in enumerate(group.gpus)}
        endless = [*pooled, *(trained if settings.policy is FillPolicy.GREEDY else [])]
        for group in endless:
            for stage, gpu in enumerate(group.gpus):
                group.timeline.report(stage, BubbleReport(gpu, 0, 0, 0, ()))
        self._bubbles = Admission(trained, model, settings)
        self._pool = Admission(pooled, model, settings)
        self._pooled = {group.number for group in pooled}
        self._fewest_layers = min((max(group.layers) for group in [*trained, *pooled]), default=0)
        self._hold = HoldQueue(settings.hold_limit)
        self._jobs: dict[int, PrefillJob] = {}
        self._records: dict[int, RequestRecord] = {}

    @property
    def records(self) -> Mapping[int, RequestRecord]:
        """The records of all requests that have arrived, by request number."""
        return self._records

    @property
    def held(self) -> int:
        """The number of requests that wait for admission."""
        return len(self._hold)

    def counts(self) -> dict[str, int]:
        """Count the outcomes so far (see ``count_outcomes``)."""
        return count_outcomes(self._records.values(), self._settings.slo_ns)

    def arrived(self, now_ns: int, request: Request) -> Commands:
        """Admit, hold or reject a new request. Raises ValueError if a request of this number has arrived before."""
        if request.number in self._records:
            raise ValueError(f"request {request.number} has arrived before")
        self.expire(now_ns)
        record = RequestRecord(request.number, self.datacenter, request.prompt_tokens, now_ns)
        self._records[request.number] = record
        offer = self._choose(now_ns, record)
        if isinstance(offer, Admitted):
            return self._take_in(now_ns, record, offer)
        self._hold_or_reject(now_ns, record, offer)
        return []

    def bubbles_reported(self, now_ns: int, report: BubbleReport) -> Commands:
        """Update the bubbles of a GPU, and admit held requests. Only the policy ``planned`` uses the report."""
        self.expire(now_ns)
        place = self._at_gpu.get(report.gpu)
        if place is None or self._settings.policy is FillPolicy.GREEDY:
            return []
        group, stage = place
        group.timeline.report(stage, report)
        self._bubbles.changed(group)
        return self._retry(now_ns, group)

    def piece_done(self, now_ns: int, done: PieceDone) -> Commands:
        """Record that a chunk has left a stage. Raises ValueError if the request has no unfinished pieces."""
        self.expire(now_ns)
        job = self._jobs.get(done.request)
        if job is None:
            raise ValueError(f"request {done.request} has no pieces that are not done")
        record, chunk, last = job.record, job.chunks[done.chunk], len(job.group.gpus) - 1
        job.group.timeline.piece_done(done.request, done.chunk, done.stage, done.ended_ns)
        if done.stage > 0 and not job.moved:
            job.group.activation_used(done.request, done.stage, chunk.activation_bytes)
        if done.stage == 0 and done.chunk == 0:
            record.started_ns = done.started_ns
        if done.stage == last and done.chunk == len(job.chunks) - 1:
            record.prefilled_ns = done.ended_ns
        job.pieces_left -= 1
        self._forget_if_over(job)
        return []

    def activation_arrived(self, now_ns: int, request: int, stage: int, chunk: int) -> Commands:
        """Record that a chunk's activation has arrived at ``stage``. Free its memory at the previous stage."""
        self.expire(now_ns)
        job = self._jobs.get(request)
        if job is not None and not job.moved:
            job.group.activation_used(request, stage - 1, job.chunks[chunk].activation_bytes)
        return []

    def kv_moved(self, now_ns: int, request: int) -> Commands:
        """Record that the whole KV cache of a request is at its decode host. Free the request's memory.

        Raises ValueError if the request has no KV cache here.
        """
        self.expire(now_ns)
        job = self._jobs.get(request)
        if job is None or job.moved:
            raise ValueError(f"request {request} has no KV cache here")
        job.moved = True
        job.record.kv_moved_ns = now_ns
        job.group.kv_moved(request)
        self._forget_if_over(job)
        return self._retry(now_ns, job.group)

    def expire(self, now_ns: int) -> None:
        """Reject held requests that cannot meet the SLO any more. Every other event method calls this first."""
        for record in self._hold.expired(now_ns):
            record.outcome = Outcome.REJECTED
            if record.reason is Reason.FORECAST:
                record.reason = Reason.SLO

    def _choose(self, now_ns: int, record: RequestRecord) -> Admitted | Reason:
        due_ns = record.arrival_ns + self._settings.slo_ns
        offer = self._bubbles.choose(now_ns, record.prompt_tokens, due_ns)
        if isinstance(offer, Admitted):
            return offer
        pooled = self._pool.choose(now_ns, record.prompt_tokens, due_ns)
        return pooled if offer is Reason.NEVER_FITS or isinstance(pooled, Admitted) else offer

    def _take_in(self, now_ns: int, record: RequestRecord, offer: Admitted) -> Commands:
        group, planned = offer.group, offer.planned
        pooled = group.number in self._pooled
        commands = group.take_in(now_ns, record.number, record.prompt_tokens, planned)
        (self._pool if pooled else self._bubbles).changed(group)
        record.outcome = Outcome.OFF_LOADED if pooled else Outcome.ADMITTED
        record.reason = None
        record.group, record.chunks = group.number, len(planned.chunks)
        record.admitted_ns, record.promised_ns = now_ns, offer.promised_ns
        self._jobs[record.number] = PrefillJob(record, group, planned.chunks, len(commands))
        return commands

    def _hold_or_reject(self, now_ns: int, record: RequestRecord, reason: Reason) -> None:
        record.reason = reason
        best_ns = self._fewest_layers * self._times.layer_ns(record.prompt_tokens)
        best_ns += self._bubbles.kv_transfer_ns(record.prompt_tokens)
        last_start_ns = record.arrival_ns + self._settings.slo_ns - best_ns
        if reason is not Reason.NEVER_FITS and last_start_ns >= now_ns and not self._hold.full:
            record.was_held = True
            self._hold.add(record, last_start_ns)
            return
        record.outcome = Outcome.REJECTED
        if last_start_ns < now_ns and reason is not Reason.NEVER_FITS:
            record.reason = Reason.SLO
        elif reason is not Reason.NEVER_FITS:
            record.reason = Reason.HOLD_FULL

    def _retry(self, now_ns: int, group: PrefillGroup) -> Commands:
        """Admit held requests to ``group``, which has changed, in order of arrival until one does not fit."""
        admission = self._pool if group.number in self._pooled else self._bubbles
        commands: Commands = []
        while (record := self._hold.first) is not None:
            due_ns = record.arrival_ns + self._settings.slo_ns
            offer = admission.offer(group, now_ns, record.prompt_tokens, due_ns)
            if isinstance(offer, Reason):
                # NEVER_FITS concerns this group alone: the request may still fit another one.
                record.reason = record.reason if offer is Reason.NEVER_FITS else offer
                break
            self._hold.remove(record)
            commands += self._take_in(now_ns, record, offer)
        admission.changed(group)
        return commands

    def _forget_if_over(self, job: PrefillJob) -> None:
        if job.moved and not job.pieces_left:
            del self._jobs[job.record.number]
