"""Eager 1F1B: 1F1B with a deeper warm-up, so that more transfers are in flight at once."""

from wanbed.workloads.schedules.one_forward_one_backward import OneForwardOneBackward


class EagerOneForwardOneBackward(OneForwardOneBackward):
    """1F1B with ``2(S - s) - 1`` warm-up forwards at stage s, about twice as many as ``1f1b`` has.

    ``warmup_depth`` is the number of warm-up forwards at stage 0 (default 2S - 1). Stage s runs
    ``1 + (depth - 1)(S - 1 - s)/(S - 1)`` of them, rounded up. So the number falls evenly to one at the last stage,
    because each boundary that follows a stage adds one round trip to the time that the stage must fill. Depth S is
    ``1f1b``. The longer the latency relative to a microbatch's computation, the deeper the warm-up may be. The shape's
    memory bound shortens the warm-up. Stage s holds no more microbatches than its warm-up has. Raises ValueError for a
    depth below 1.
    Source: Zhuang et al., "On Optimizing the Communication of Model Parallelism", MLSys 2023, which names the default.
    """

    def _default_depth(self) -> int:
        return 2 * self.shape.stages - 1

    def _unbounded_warmup(self, stage: int) -> int:
        boundaries = self.shape.stages - 1
        if boundaries == 0:
            return 1
        return 1 - (-(self._warmup_depth - 1) * (boundaries - stage) // boundaries)
