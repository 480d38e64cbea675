"""Choose the group that a request is admitted to, if any."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from wanbed.workloads.inference.inference_model import InferenceModel
from wanbed.workloads.prefill.control.group_timeline import PlannedPrefill
from wanbed.workloads.prefill.control.outcome import Reason
from wanbed.workloads.prefill.control.prefill_group import PrefillGroup
from wanbed.workloads.prefill.prefill_settings import PrefillSettings


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
