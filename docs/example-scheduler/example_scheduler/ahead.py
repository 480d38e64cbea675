"""Run some microbatches of 1F1B ahead, so that a stage has work while gradients cross the WAN."""

from collections.abc import Sequence

from wanbed import Action, ActionKind, FixedOrder, PipelineShape


class Ahead(FixedOrder):
    """1F1B with ``ahead`` (default 1) more warm-up forwards than ``1f1b`` at every stage but the last.

    In 1F1B, stage s of S waits for the gradient of its first microbatch after S - s forwards. Each additional forward
    covers some of the round trip that the gradient also needs, and holds one more microbatch in memory. The shape's
    memory bound shortens the warm-up. Raise ValueError if ``ahead`` is below 0.
    """

    def __init__(self, shape: PipelineShape, *, ahead: int = 1) -> None:
        super().__init__(shape)
        if isinstance(ahead, bool) or not isinstance(ahead, int) or ahead < 0:
            raise ValueError(f"ahead: {ahead!r} is no number of microbatches: give 0 or more")
        self._ahead = ahead

    def warmup(self, stage: int) -> int:
        """Return how many forwards ``stage`` runs before its first backward.

        Never more than any earlier stage may hold: the earlier stage would wait for a gradient, and this one for an
        activation.
        """
        last = self.shape.stages - 1
        wanted = 1 if stage == last else last + 1 - stage + self._ahead
        return min(wanted, *(self.shape.most_in_flight(before) for before in range(stage + 1)), self.shape.microbatches)

    def order(self, stage: int) -> Sequence[Action]:
        """Return the warm-up, then a backward and a forward in turn, then the backwards that are left."""
        warmup = self.warmup(stage)
        actions = [Action(ActionKind.FORWARD, microbatch) for microbatch in range(warmup)]
        for microbatch in range(self.shape.microbatches):
            actions += self.backward(stage, microbatch)
            if microbatch + warmup < self.shape.microbatches:
                actions.append(Action(ActionKind.FORWARD, microbatch + warmup))
        return actions
