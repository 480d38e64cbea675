"""How fast initial weights are drawn: on one core and on all, beside one call of torch for each parameter.

Medians of repeats that take turns. Seconds that pass depend on what else the machine does, so the limit is one on those
of the processor: what is drawn on all cores costs no more of them.
"""

import os
import time
from collections.abc import Callable
from statistics import median

import torch

from wanbed.workloads.gpt.initial_weights import NormalWeights, _generator_of, draw_weights

REPEATS = 5
HIDDEN = 4096
SHAPES = 2 * [(3 * HIDDEN, HIDDEN), (HIDDEN, HIDDEN), (4 * HIDDEN, HIDDEN), (HIDDEN, 4 * HIDDEN)]
"""Two layers of gpt-a: 403 million weights."""
DEVIATION = 0.02
MAX_PROCESSOR_RATIO = 1.15


def at_once(weights: list[NormalWeights]) -> None:
    for each in weights:
        exact = torch.empty(each.tensor.shape, dtype=torch.float32)
        each.tensor.copy_(exact.normal_(0, each.deviation, generator=_generator_of(0, each.name)))


def on_one_core(weights: list[NormalWeights]) -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        draw_weights(weights, 0)
    finally:
        os.sched_setaffinity(0, allowed)


def on_all_cores(weights: list[NormalWeights]) -> None:
    draw_weights(weights, 0)


def test_weights() -> None:
    torch.set_num_threads(1)
    ways: list[Callable[[list[NormalWeights]], None]] = [at_once, on_one_core, on_all_cores]
    passed: dict[str, list[float]] = {way.__name__: [] for way in ways}
    processor: dict[str, list[float]] = {way.__name__: [] for way in ways}
    for _ in range(REPEATS):
        drawn = []
        for way in ways:
            weights = [
                NormalWeights(f"layers.{number}.weight", torch.zeros(shape, dtype=torch.bfloat16), DEVIATION)
                for number, shape in enumerate(SHAPES)
            ]
            start_s, processor_start_s = time.perf_counter(), time.process_time()
            way(weights)
            passed[way.__name__].append(time.perf_counter() - start_s)
            processor[way.__name__].append(time.process_time() - processor_start_s)
            drawn.append(weights)
        for at_once_each, *others in zip(*drawn, strict=True):
            assert all(torch.equal(at_once_each.tensor, each.tensor) for each in others)
    count = sum(rows * columns for rows, columns in SHAPES)
    cores = len(os.sched_getaffinity(0))
    first_s, first_processor_s = median(passed["at_once"]), median(processor["at_once"])
    print(f"\n{count / 1e6:.0f} million weights in bf16, {cores} cores")
    for name, seconds in passed.items():
        passed_s, processor_s = median(seconds), median(processor[name])
        print(
            f"{name:13s} {passed_s:5.2f} s, {count / passed_s / 1e6:4.0f} M/s, {passed_s / first_s:4.2f} of at_once; "
            f"of the processor {processor_s:5.2f} s, {processor_s / first_processor_s:4.2f} of at_once"
        )
        assert processor_s < MAX_PROCESSOR_RATIO * first_processor_s
