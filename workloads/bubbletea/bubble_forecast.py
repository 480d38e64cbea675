"""Predict when training needs a GPU next, from the iteration plan and the last iterations.

Training repeats the same actions in every iteration. The anchor of an iteration is the start of its first action on
this GPU. An action is predicted to start at the anchor plus its median offset over the last iterations, or the plan's
offset as long as none has been observed. An iteration that runs ahead of the prediction is expected to stay ahead by
as much as its last action was; one that runs late is not expected to stay late. The next anchor is one period after
this one.

The margin covers how much earlier than predicted training came: a quantile over all actions, and for each action at
least its own earliest, because some actions (the first backward, at the end of the longest bubble) vary more than the
others.

During the warm-up iterations no bubble is predicted. Their first half does not enter the medians, because connections
have just been opened and their windows still grow. The second half is compared with its own medians once it is
complete, because predictions from one or two iterations are not representative.

The plan's offsets are those of Atlas's plan for a DP-cell, if all stage and boundary costs hold.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median_low

from wanbed.workloads.bubbletea.messages import ENDLESS_NS, BubbleReport
from wanbed.workloads.bubbletea.prefill_settings import PrefillSettings
from wanbed.workloads.message import MessageKind
from wanbed.workloads.schedules.action import TAKES_GRADIENT, Action, ActionKind
from wanbed.workloads.schedules.planning.cell_plan import BoundaryCosts, CellCosts, CellPlan

ActionKey = tuple[str, int]
"""Kind and microbatch, unique within an iteration on one GPU."""

_NEXT_ITERATION: ActionKey = ("next iteration", -1)


@dataclass(frozen=True, slots=True)
class PlannedAction:
    """An action's start and end, in nanoseconds after the start of the iteration's first action on the GPU."""

    key: ActionKey
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class IterationPlan:
    """The actions of one training iteration on one GPU, in order. The next iteration begins ``period_ns`` after it."""

    actions: tuple[PlannedAction, ...]
    period_ns: int


class _History:
    """The last ``window`` values of a time that hardly changes between iterations."""

    __slots__ = ("_values",)

    def __init__(self, window: int) -> None:
        self._values: deque[int] = deque(maxlen=window)

    @property
    def early(self) -> list[int]:
        """The distance of each value below the median, at least 0."""
        median = self.median(0)
        return [max(0, median - value) for value in self._values]

    def add(self, value: int) -> None:
        self._values.append(value)

    def median(self, otherwise: int) -> int:
        return median_low(self._values) if self._values else otherwise


class BubbleForecast:
    """Predicts one GPU's bubbles from the training actions reported to it.

    Without ``plan`` the first complete iteration serves as the plan. Nothing is predicted before an anchor and a period
    are known and the settings' ``warmup_iterations`` are over.
    """

    def __init__(self, settings: PrefillSettings, plan: IterationPlan | None = None) -> None:
        self._settings = settings
        self._starts: dict[ActionKey, _History] = {}
        self._durations: dict[ActionKey, _History] = {}
        self._period = _History(settings.window)
        self._early: deque[dict[ActionKey, int]] = deque(maxlen=settings.window)
        self._plan = {action.key: action for action in plan.actions} if plan else {}
        self._period_ns = plan.period_ns if plan else 0
        self._over = False
        self._seen = 0
        self._iteration: int | None = None
        self._anchor_ns = 0
        self._wanted_ns: int | None = None
        self._running: tuple[ActionKey, int] | None = None
        self._seen_starts: dict[ActionKey, int] = {}
        self._seen_durations: dict[ActionKey, int] = {}
        self._early_now: dict[ActionKey, int] = {}
        self._ahead_ns = 0
        self._watched: deque[dict[ActionKey, int]] = deque(maxlen=settings.window)
        self._predicted: dict[ActionKey, int] = {}
        self._order: list[tuple[int, ActionKey]] = []
        self._next = 0
        self._pattern: tuple[tuple[int, int], ...] = ()
        self._handover_ns = settings.switch_ns + settings.guard_ns
        self._margin_ns = self._handover_ns
        self._earliest: dict[ActionKey, int] = {}
        self.longest_bubble_ns = 0
        """The length of the longest bubble in one iteration, the margin taken off."""

    @property
    def margin_ns(self) -> int:
        """The least time between the end of a bubble and training's predicted action."""
        return self._margin_ns

    @property
    def next_margin_ns(self) -> int:
        """The margin of the bubble that ends next."""
        return self.margin_before(self._coming()[1])

    def margin_before(self, key: ActionKey) -> int:
        """Return how long before a predicted action its bubble ends: longer for an action that has come very early."""
        return max(self._margin_ns, self._handover_ns + self._earliest.get(key, 0))

    def training_wanted(self, now_ns: int) -> None:
        """Record that training is ready to start an action, and may have to wait for the GPU."""
        self._wanted_ns = now_ns

    def training_started(self, now_ns: int, iteration: int, key: ActionKey) -> None:
        """Record an action's start. It counts from ``training_wanted``, if that was called before."""
        start_ns = now_ns if self._wanted_ns is None else self._wanted_ns
        self._wanted_ns = None
        if iteration != self._iteration:
            self._begin(start_ns, iteration)
        self._seen_starts[key] = start_ns - self._anchor_ns
        self._running = key, now_ns
        predicted_ns = self._predicted.get(key)
        if predicted_ns is not None and start_ns != self._anchor_ns:
            late_ns = start_ns - self._anchor_ns - predicted_ns
            self._early_now[key] = max(0, -self._ahead_ns - late_ns)
            self._ahead_ns = max(0, -late_ns)
        while self._next < len(self._order) and self._order[self._next][1] in self._seen_starts:
            self._next += 1

    def training_ended(self, now_ns: int, iteration: int, key: ActionKey) -> None:
        """Record the end of a training action."""
        running, self._running = self._running, None
        if running is not None and running[0] == key and iteration == self._iteration:
            self._seen_durations[key] = now_ns - running[1]

    def training_over(self) -> None:
        """Predict one endless bubble from now on, because training does not need this GPU any more, or never did."""
        self._over = True
        self.longest_bubble_ns = ENDLESS_NS

    def bubble_end(self, now_ns: int) -> int:
        """Return when the current bubble ends, the margin taken off; ``now_ns`` if that is unknown or already past."""
        if self._over:
            return ENDLESS_NS
        if not self._known():
            return now_ns
        offset_ns, key = self._coming()
        return max(now_ns, self._anchor_ns + offset_ns - self._ahead_ns - self.margin_before(key))

    def bubbles(self, from_ns: int, until_ns: int) -> list[tuple[int, int]]:
        """Return the bubbles predicted between ``from_ns`` and ``until_ns``, clipped to these, margins taken off."""
        if self._over:
            return [(from_ns, until_ns)] if from_ns < until_ns else []
        if not self._known() or not self._pattern:
            return []
        found = []
        base_ns = self._anchor_ns + max(0, (from_ns - self._anchor_ns) // self._period_ns) * self._period_ns
        while base_ns < until_ns:
            for start_ns, end_ns in self._pattern:
                clipped = max(from_ns, base_ns + start_ns), min(until_ns, base_ns + end_ns)
                if clipped[0] < clipped[1]:
                    found.append(clipped)
            base_ns += self._period_ns
        return found

    def report(self, gpu: int) -> BubbleReport | None:
        """Return the report for the controller, to be sent once an iteration; None while nothing is predicted."""
        if self._over:
            return BubbleReport(gpu, 0, 0, 0, ())
        if not self._known():
            return None
        return BubbleReport(gpu, self._anchor_ns, self._period_ns, self._margin_ns, self._pattern)

    def _coming(self) -> tuple[int, ActionKey]:
        """Return the offset from the anchor of training's next action, and its key."""
        return self._order[self._next] if self._next < len(self._order) else (self._period_ns, _NEXT_ITERATION)

    def _known(self) -> bool:
        return self._iteration is not None and self._period_ns > 0 and self._seen >= self._settings.warmup_iterations

    def _begin(self, anchor_ns: int, iteration: int) -> None:
        if self._iteration is not None:
            self._learn(anchor_ns)
        self._iteration = iteration
        self._anchor_ns = anchor_ns
        self._ahead_ns = 0
        self._seen_starts.clear()
        self._seen_durations.clear()
        self._predict()

    def _learn(self, anchor_ns: int) -> None:
        """Update medians and margins from the iteration that has ended, as the next one has begun at ``anchor_ns``."""
        self._seen += 1
        window = self._settings.window
        passed_ns = anchor_ns - self._anchor_ns
        watched = self._seen - self._settings.warmup_iterations
        if self._period_ns:
            self._early_now[_NEXT_ITERATION] = max(0, self._period_ns - self._ahead_ns - passed_ns)
        if not self._plan:
            self._plan = {
                key: PlannedAction(key, start_ns, start_ns + self._seen_durations[key])
                for key, start_ns in self._seen_starts.items()
                if key in self._seen_durations
            }
        if self._seen <= self._settings.warmup_iterations // 2:
            self._period_ns = self._period_ns or passed_ns
            self._early_now = {}
            return
        self._period.add(passed_ns)
        self._period_ns = self._period.median(passed_ns)
        for key, start_ns in self._seen_starts.items():
            self._starts.setdefault(key, _History(window)).add(start_ns)
        for key, duration_ns in self._seen_durations.items():
            self._durations.setdefault(key, _History(window)).add(duration_ns)
        if watched <= 0:
            self._watched.append(dict(self._seen_starts))
        if watched == 0:
            self._early.extend(self._early_when_watched())
        elif watched > 0:
            self._early.append(self._early_now)
        self._early_now = {}
        self._margin_ns = self._handover_ns + self._usually_early_ns()
        self._earliest = {}
        for iteration in self._early:
            for key, early_ns in iteration.items():
                self._earliest[key] = max(early_ns, self._earliest.get(key, 0))

    def _early_when_watched(self) -> list[dict[ActionKey, int]]:
        """Return for each warm-up iteration how much earlier its actions came than the medians of these iterations."""
        early = []
        for starts, period_early_ns in zip(self._watched, self._period.early, strict=True):
            ahead_ns = 0
            seen = {_NEXT_ITERATION: period_early_ns}
            for key, start_ns in starts.items():
                late_ns = start_ns - self._starts[key].median(start_ns)
                seen[key] = max(0, -ahead_ns - late_ns)
                ahead_ns = max(0, -late_ns)
            early.append(seen)
        self._watched.clear()
        return early

    def _usually_early_ns(self) -> int:
        early = sorted(early_ns for iteration in self._early for early_ns in iteration.values())
        if not early:
            return 0
        return early[max(0, ceil(len(early) * self._settings.early_quantile) - 1)]

    def _predict(self) -> None:
        """Predict the actions and bubbles of this iteration and the following ones."""
        nothing = _History(1)
        actions = []
        for key, planned in self._plan.items():
            start_ns = self._starts.get(key, nothing).median(planned.start_ns)
            duration_ns = self._durations.get(key, nothing).median(planned.end_ns - planned.start_ns)
            actions.append((start_ns, duration_ns, key))
        actions.sort()
        self._predicted = {key: start_ns for start_ns, _, key in actions}
        self._order = [(start_ns, key) for start_ns, _, key in actions]
        self._next = 0
        self._pattern = self._bubbles_between(actions)
        if not self._over:
            self.longest_bubble_ns = longest(self._pattern)

    def _bubbles_between(self, actions: Sequence[tuple[int, int, ActionKey]]) -> tuple[tuple[int, int], ...]:
        """Return the bubbles between ``actions``, which are (start, duration, key) in order."""
        bubbles, free_ns = [], 0
        for start_ns, length_ns, key in (*actions, (self._period_ns, 0, _NEXT_ITERATION)):
            until_ns = start_ns - self.margin_before(key)
            if free_ns < until_ns:
                bubbles.append((free_ns, until_ns))
            free_ns = max(free_ns, start_ns + length_ns)
        return tuple(bubbles)


def longest(bubbles: Sequence[tuple[int, int]]) -> int:
    """Return the length of the longest bubble, 0 if there is none."""
    return max((end_ns - start_ns for start_ns, end_ns in bubbles), default=0)


_Place = tuple[int, int]
"""Pipeline and stage."""


class _Boundary:
    """One direction of a stage boundary, of one pipeline or shared by the DP-cell. Transfers are serialized."""

    def __init__(self, costs: BoundaryCosts, turns: deque[tuple[int, int]] | None) -> None:
        self._costs = costs
        self._turns = turns
        self._free_ns = 0
        self._ready: dict[tuple[int, int], int] = {}

    def offer(self, turn: tuple[int, int], ready_ns: int) -> list[tuple[tuple[int, int], int, int]]:
        """Queue a transfer that is ready to be sent. Return every transfer whose turn has come.

        With each come the time at which it has left, and at which it has arrived.
        """
        self._ready[turn] = ready_ns
        order = deque([turn]) if self._turns is None else self._turns
        arrivals = []
        while order and order[0] in self._ready:
            first = order.popleft()
            self._free_ns = max(self._free_ns, self._ready.pop(first)) + self._costs.occupancy_ns
            arrivals.append((first, self._free_ns, self._free_ns + self._costs.latency_ns))
        return arrivals


def planned_iterations(plan: CellPlan, costs: CellCosts, after_ns: int) -> dict[_Place, IterationPlan]:
    """Return the iteration plan of each GPU, by pipeline and stage. Times count from the GPU's own first action.

    ``after_ns`` is the time from the last action's end to the next iteration's first action: the all-reduces and the
    optimizer. Raises ValueError if the plan's orders deadlock under these costs.
    """
    stages = costs.shape.stages
    durations = costs.durations_ns
    links: dict[tuple[MessageKind, int, int], _Boundary] = {}
    for kind, turns in ((MessageKind.ACTIVATION, plan.activation_turns), (MessageKind.GRADIENT, plan.gradient_turns)):
        for number, boundary in enumerate(costs.boundaries):
            own = boundary.of(kind)
            shared = _Boundary(own, deque(turns[number])) if boundary.shared else None
            for pipeline in range(costs.pipelines):
                links[kind, number, pipeline] = shared or _Boundary(own, None)
    remaining = {
        (pipeline, stage): deque(order)
        for pipeline, orders in enumerate(plan.orders)
        for stage, order in enumerate(orders)
    }
    done: dict[_Place, list[PlannedAction]] = {place: [] for place in remaining}
    arrivals_ns: dict[tuple[_Place, MessageKind, int], int] = {}
    # None while a place that sends is held until its transfer has left, else when it was.
    released_ns: dict[_Place, int | None] = dict.fromkeys(remaining, 0)
    pending = deque(remaining)
    while pending:
        place = pending.popleft()
        pipeline, stage = place
        while remaining[place] and (free_ns := released_ns[place]) is not None:
            action = remaining[place][0]
            awaited = _awaited(action, stage, stages)
            arrival_ns = 0 if awaited is None else arrivals_ns.get((place, awaited, action.microbatch))
            if arrival_ns is None:
                break
            remaining[place].popleft()
            start_ns = max(arrival_ns, free_ns, done[place][-1].end_ns if done[place] else 0)
            end_ns = start_ns + durations[action.kind][stage]
            done[place].append(PlannedAction((action.kind.value, action.microbatch), start_ns, end_ns))
            sent = _sent(action, stage, stages)
            if sent is None:
                continue
            forward = sent is MessageKind.ACTIVATION
            link = links[sent, stage if forward else stage - 1, pipeline]
            if costs.sends_block:
                released_ns[place] = None
            for (sender, microbatch), left_ns, at_ns in link.offer((pipeline, action.microbatch), end_ns):
                receiver = sender, stage + 1 if forward else stage - 1
                arrivals_ns[receiver, sent, microbatch] = at_ns
                pending.append(receiver)
                if costs.sends_block:
                    released_ns[sender, stage] = left_ns
                    pending.append((sender, stage))
    if any(remaining.values()):
        raise ValueError("plan: its orders do not come to an end under these costs")
    period_ns = max(actions[-1].end_ns for actions in done.values()) + after_ns
    return {place: IterationPlan(_from_the_first(actions), period_ns) for place, actions in done.items()}


def _awaited(action: Action, stage: int, stages: int) -> MessageKind | None:
    if action.kind is ActionKind.FORWARD and stage > 0:
        return MessageKind.ACTIVATION
    return MessageKind.GRADIENT if action.kind in TAKES_GRADIENT and stage < stages - 1 else None


def _sent(action: Action, stage: int, stages: int) -> MessageKind | None:
    if action.kind is ActionKind.FORWARD and stage < stages - 1:
        return MessageKind.ACTIVATION
    return MessageKind.GRADIENT if action.kind in TAKES_GRADIENT and stage > 0 else None


def _from_the_first(actions: list[PlannedAction]) -> tuple[PlannedAction, ...]:
    anchor_ns = actions[0].start_ns
    return tuple(
        PlannedAction(action.key, action.start_ns - anchor_ns, action.end_ns - anchor_ns) for action in actions
    )
