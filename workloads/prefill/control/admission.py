"""Choose which group takes a request in, if any does."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from workloads.inference.inference_model import InferenceModel
from workloads.prefill.control.group_timeline import PlannedPrefill
from workloads.prefill.control.outcome import Reason
from workloads.prefill.control.prefill_group import PrefillGroup
from workloads.prefill.prefill_settings import PrefillSettings


@dataclass(frozen=True)
class Admitted:
    """An offer of the group that will prefill the prompt first. By ``promised_ns`` its KV cache will have moved."""

    group: PrefillGroup
    planned: PlannedPrefill
    promised_ns: int


class _Order:
    """Groups in the order in which they will have done their work. The first is found in few steps."""

    def __init__(self, groups: Sequence[PrefillGroup]) -> None:
        self._groups = groups
        self._keys = [group.timeline.horizon_ns for group in groups]
        self._heap = sorted((key, place) for place, key in enumerate(self._keys))

    def update(self, place: int) -> None:
        """Enter a group's changed plan."""
        key = self._groups[place].timeline.horizon_ns
        if key != self._keys[place]:
            self._keys[place] = key
            if len(self._heap) > 4 * len(self._keys):
                self._heap = sorted((key, place) for place, key in enumerate(self._keys))
            else:
                heappush(self._heap, (key, place))

    def places(self) -> Generator[int]:
        """Yield the places of the groups, the one that ends first at the start. Close it before the next update."""
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
    """Admission to some groups, under one SLO.

    A request is taken in only where every stage ends in time for training by the plan, where its memory can be
    reserved for all of its life, and where its TTFT keeps the SLO.
    """

    def __init__(self, groups: Sequence[PrefillGroup], model: InferenceModel, settings: PrefillSettings) -> None:
        self._groups = groups
        self._places = {group.number: place for place, group in enumerate(groups)}
        self._order = _Order(groups)
        self._model = model
        self._settings = settings

    def choose(self, now_ns: int, prompt_tokens: int, due_ns: int) -> Admitted | Reason:
        """Return the offer of the group that ends first, among those whose work so far ends first.

        The settings limit the number of candidates. If no group takes the request, returns the reason that passes
        soonest; ``NEVER_FITS`` only if that holds for each one.
        """
        best: Admitted | None = None
        reasons: set[Reason] = set()
        asked: list[int] = []
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
            asked.append(place)
            candidates += offer is not Reason.NEVER_FITS
            if isinstance(offer, Reason):
                reasons.add(offer)
            else:
                best = offer
        order.close()
        for place in asked:
            self._order.update(place)
        if best is not None:
            return best
        order_of_reasons = (Reason.MEMORY, Reason.FORECAST, Reason.SLO)
        return next((reason for reason in order_of_reasons if reason in reasons), Reason.NEVER_FITS)

    def offer(self, group: PrefillGroup, now_ns: int, prompt_tokens: int, due_ns: int) -> Admitted | Reason:
        """Return what one group can promise, or why it cannot."""
        kv_ns = self.kv_transfer_ns(prompt_tokens)
        reason = group.memory_reason(prompt_tokens)
        if reason is not None:
            return reason
        planned = group.timeline.plan(now_ns, prompt_tokens, due_ns - kv_ns)
        if isinstance(planned, Reason):
            return planned
        return Admitted(group, planned, planned.end_ns + kv_ns)

    def changed(self, group: PrefillGroup) -> None:
        """Enter that a group has taken something in, or that its bubbles have changed."""
        self._order.update(self._places[group.number])

    def kv_transfer_ns(self, prompt_tokens: int) -> int:
        """Estimate the time to move the whole KV cache on one path, none of it before the prefill's end: cautiously."""
        return self._settings.transfer_ns(self._model.kv_bytes(self._model.layers, prompt_tokens))
