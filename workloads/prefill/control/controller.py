"""Control the prefill of one DC: which requests are taken in, which GPUs do them, and the outcome of each.

It receives events and answers with commands for GPUs. It reads no clock and keeps no connection, so that events of
a simulation and messages of a network drive it alike.
"""

from collections.abc import Mapping, Sequence

from workloads.inference.inference_model import InferenceModel
from workloads.prefill.control.admission import Admission, Admitted
from workloads.prefill.control.hold_queue import HoldQueue
from workloads.prefill.control.outcome import Outcome, Reason, RequestRecord, count_outcomes
from workloads.prefill.control.prefill_group import GroupGpus, PrefillGroup
from workloads.prefill.control.prefill_job import PrefillJob
from workloads.prefill.control.prompt_chunks import ChunkTimes
from workloads.prefill.messages import BubbleReport, PieceDone, QueuePiece
from workloads.prefill.prefill_profile import PrefillProfile
from workloads.prefill.prefill_settings import FillPolicy, PrefillSettings
from workloads.prefill.request import Request

Commands = list[QueuePiece]


class PrefillController:
    """The controller of ``datacenter``, whose groups share no GPU.

    Bubbles come first; the pool, if there is one, takes what they do not; then a request waits, if it could still be in
    time; else it is rejected. Under the policy ``none`` all goes to the pool. Under ``greedy`` bubbles are not known,
    and every GPU counts as idle for ever.

    Every method takes the time and returns the commands that follow. Raises ValueError naming the field or GPU where
    the groups do not fit together, or a GPU's memory does not hold the weights.
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
            raise ValueError("groups: a GPU stands in two of them, or twice in one")
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
        """Every request that has arrived, by its number."""
        return self._records

    @property
    def held(self) -> int:
        """The number of requests that wait for admission."""
        return len(self._hold)

    def counts(self) -> dict[str, int]:
        """Count the outcomes so far (see ``count_outcomes``)."""
        return count_outcomes(self._records.values(), self._settings.slo_ns)

    def arrived(self, now_ns: int, request: Request) -> Commands:
        """Admit, hold or reject a new request. Raises ValueError if one of its number has come before."""
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
        """Take in a GPU's report of its bubbles. The policies that do not plan ignore it."""
        self.expire(now_ns)
        place = self._at_gpu.get(report.gpu)
        if place is None or self._settings.policy is FillPolicy.GREEDY:
            return []
        group, stage = place
        group.timeline.report(stage, report)
        self._bubbles.changed(group)
        return self._retry(now_ns, group)

    def piece_done(self, now_ns: int, done: PieceDone) -> Commands:
        """Record that a chunk has left a stage."""
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
        """Record that a chunk's activation is at ``stage``, and so no longer needed at the stage before."""
        self.expire(now_ns)
        job = self._jobs.get(request)
        if job is not None and not job.moved:
            job.group.activation_used(request, stage - 1, job.chunks[chunk].activation_bytes)
        return []

    def kv_moved(self, now_ns: int, request: int) -> Commands:
        """Free the memory of a request whose whole KV cache is at its decode host."""
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
        """Reject requests that have waited until they cannot be in time any more. Every other method does so first."""
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
        """Offer those who wait longest to the one group that has changed, until it has no room."""
        admission = self._pool if group.number in self._pooled else self._bubbles
        commands: Commands = []
        while (record := self._hold.first) is not None:
            due_ns = record.arrival_ns + self._settings.slo_ns
            offer = admission.offer(group, now_ns, record.prompt_tokens, due_ns)
            if isinstance(offer, Reason):
                # Another group may still hold what this one never will.
                record.reason = record.reason if offer is Reason.NEVER_FITS else offer
                break
            self._hold.remove(record)
            commands += self._take_in(now_ns, record, offer)
        admission.changed(group)
        return commands

    def _forget_if_over(self, job: PrefillJob) -> None:
        if job.moved and not job.pieces_left:
            del self._jobs[job.record.number]
