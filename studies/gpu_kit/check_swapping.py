"""Check that a device trains with swapped layers as without: ``python -m studies.gpu_kit.check_swapping DEVICE``.

A small GPT first: its losses, gradients and weights have to be the same. Then a larger one is measured: how fast layers
are loaded, how long each group computes and loads, both passes against the formula of docs/atom.md, and the memory.
One replica trains in this process, without connections. ``--output FILE`` writes the figures as JSON.
"""

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from studies.gpu_kit.clocks import clocks_named
from wanbed.results.records.span_log import SwappingRecord
from wanbed.runner.companions.losses.on_hosts import largest_error
from wanbed.workloads.compute.computed_stage import ComputedStage
from wanbed.workloads.compute.device_settings import SwapSettings, TrainingDevice
from wanbed.workloads.compute.swapped_compute import SwappedCompute
from wanbed.workloads.compute.torch_compute import TorchCompute
from wanbed.workloads.compute.torch_work import TorchWork
from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.gpt.learning_config import LearningConfig
from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.schedules.group_by_group import group_by_group


@dataclass(frozen=True)
class LoneTraining:
    """The outcome of a training: losses, the last iteration's gradients and the weights after it, by parameter, fp32.

    ``iterations_ns`` is how long each iteration took, without the optimizer, and ``optimizer_ns`` what that took.
    ``peak_bytes`` is the most memory of the GPU that tensors took at once, None on the CPU.
    """

    losses: tuple[float, ...]
    gradients: dict[str, Any]
    weights: dict[str, Any]
    iterations_ns: tuple[int, ...]
    optimizer_ns: tuple[int, ...]
    peak_bytes: int | None
    device: str
    swapping: SwappingRecord | None = None

    def loss_error(self, other: "LoneTraining") -> float:
        """Return the largest relative difference of two losses of one iteration, nan if one is nan."""
        return largest_error(self.losses, other.losses)

    def same_bits(self, other: "LoneTraining") -> bool:
        """Return whether losses, gradients and weights are equal, bit by bit."""
        return self.losses == other.losses and all(
            np.array_equal(found[name], expected[name])
            for found, expected in ((self.gradients, other.gradients), (self.weights, other.weights))
            for name in expected
        )


def train_alone(work: TorchWork, iterations: int, *, keeps_weights: bool = True) -> LoneTraining:
    """Train so many iterations, with swapping if ``work`` has it. Without ``keeps_weights`` no gradients are kept too.

    Raise the errors of the computation.
    """
    # A computation has reference cycles, so that only the garbage collector frees the memory of an earlier one.
    gc.collect()
    _begin_peak()
    compute: SwappedCompute | TorchCompute
    microbatches = work.computed.microbatches
    if work.device.swapping is None:
        compute = TorchCompute(work, lambda _: None)
        order = list(_whole(microbatches))
    else:
        compute = SwappedCompute(work, work.device.swapping)
        order = list(group_by_group(compute.groups, microbatches).order(0))
    losses, iterations_ns, optimizer_ns = [], [], []
    gradients: dict[str, Any] = {}
    for iteration in range(iterations):
        compute.begin(iteration)
        for action in order:
            compute.perform(action)
        if keeps_weights and iteration == iterations - 1:
            gradients = compute.named_gradients()
        compute.update()
        loss = compute.loss()
        assert loss is not None
        losses.append(loss)
        *computed, updated = compute.resolve()
        iterations_ns.append(computed[-1][1] - computed[0][0])
        optimizer_ns.append(updated[1] - updated[0])
    weights = {
        name: weights.detach().float().cpu().numpy().copy()
        for name, weights in (compute.parameters.named_weights() if keeps_weights else ())
    }
    return LoneTraining(
        tuple(losses),
        gradients,
        weights,
        tuple(iterations_ns),
        tuple(optimizer_ns),
        _peak_bytes(),
        compute.record().model,
        compute.swapping_record() if isinstance(compute, SwappedCompute) else None,
    )


def swapping(work: TorchWork, settings: SwapSettings) -> TorchWork:
    """Return the same work with the model swapped in this way."""
    return replace(work, device=replace(work.device, swapping=settings))


def without_swapping(work: TorchWork) -> TorchWork:
    """Return the same work with the whole model on the device all the time."""
    return replace(work, device=replace(work.device, swapping=None))


def _whole(microbatches: int) -> Iterator[Action]:
    for microbatch in range(microbatches):
        yield Action(ActionKind.FORWARD, microbatch)
    for microbatch in range(microbatches):
        yield Action(ActionKind.RECOMPUTE, microbatch)
        yield Action(ActionKind.BACKWARD, microbatch)


def _begin_peak() -> None:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def _peak_bytes() -> int | None:
    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None


SMALL = GptConfig(layers=6, hidden=128, context=64, heads=4, vocabulary=512)

GROUPINGS = ((6,), (1, 2, 1, 2), (1, 1, 1, 1, 1, 1))
"""The groups that the small model is cut into. With the first one all of it is there in an iteration."""

SMALL_ITERATIONS, LARGE_ITERATIONS, WARMUP = 4, 5, 1

LOSS_TOLERANCE = 1e-5
"""The largest relative difference of a loss from that of the model which is never swapped.

On a GPU its optimizer rounds otherwise than that of the CPU, which works on swapped layers; the first loss is the same.
"""

BF16_TOLERANCE = 1e-2

LARGE = {
    "cuda": GptConfig(layers=12, hidden=4096, context=4096, heads=32, vocabulary=50304),
    "cpu": GptConfig(layers=12, hidden=128, context=64, heads=4, vocabulary=512),
}

LARGE_MICROBATCHES = {"cuda": 8, "cpu": 4}

MEMORY_SHARE = 4
"""Of the larger model's weights the device may have one part in so many, or two layers."""


@dataclass(frozen=True)
class Result:
    """One line. ``passed`` is None for a figure that is only reported."""

    text: str
    passed: bool | None = None
    figures: Any = None


def work_of(config: GptConfig, device: str, microbatches: int, precision: str, *, deterministic: bool) -> TorchWork:
    """Return one replica that trains alone. Its optimizer has all cores that this process may use."""
    return TorchWork(
        ComputedStage(stages=1, stage=0, pipelines=1, pipeline=0, microbatches=microbatches),
        LearningConfig(config, 1e-3, precision, seed=7),
        TrainingDevice(
            device,
            threads=len(os.sched_getaffinity(0)) if device != "cpu" else 1,
            deterministic=deterministic,
            swapping=SwapSettings(),
        ),
        recompute=True,
    )


def memory_of(config: GptConfig) -> int:
    """Return what the device may have of a model in bf16."""
    layers = [config.gradient_bytes(layer, config.layers, "bf16") for layer in range(config.layers)]
    return max(sum(layers) // MEMORY_SHARE, *(one + other for one, other in pairwise(layers)), *layers)


def check(device: str, config: GptConfig = SMALL) -> Iterator[Result]:
    """Train a small model without swapping, and with each grouping, the last one twice."""
    for precision, tolerance in (("fp32", LOSS_TOLERANCE), ("bf16", BF16_TOLERANCE)):
        work = work_of(config, device, 4, precision, deterministic=True)
        whole = train_alone(without_swapping(work), SMALL_ITERATIONS)
        swapped = [
            train_alone(swapping(work, SwapSettings(sizes)), SMALL_ITERATIONS) for sizes in (*GROUPINGS, GROUPINGS[-1])
        ]
        yield judged(precision, whole, swapped, tolerance)


def judged(precision: str, whole: LoneTraining, swapped: list[LoneTraining], tolerance: float) -> Result:
    """Return the verdict on one precision. All groupings have to give the same bits."""
    first, *others = swapped
    same = all(each.same_bits(first) for each in others)
    error, begins_alike = first.loss_error(whole), first.losses[0] == whole.losses[0]
    bits = "the same bits as" if first.same_bits(whole) else f"losses off by {error:.1e} of {tolerance:.0e} from"
    return Result(
        f"{precision}: {len(swapped)} trainings with {len(GROUPINGS)} groupings have "
        f"{'the same' if same else 'OTHER'} bits, {bits} those without swapping, "
        f"{'the same' if begins_alike else 'ANOTHER'} first loss, on {first.device}",
        # A comparison with nan is false.
        same and begins_alike and error <= tolerance,
        {"loss_error": error, "same_bits_as_whole": first.same_bits(whole)},
    )


def measure(device: str, config: GptConfig, microbatches: int) -> Iterator[Result]:
    """Train a larger model in bf16 with swapping and without, and compare."""
    work = work_of(config, device, microbatches, "bf16", deterministic=False)
    work = swapping(work, SwapSettings(memory_bytes=memory_of(config)))
    swapped = train_alone(work, LARGE_ITERATIONS, keeps_weights=False)
    record = swapped.swapping
    assert record is not None
    yield Result(
        f"model: {config.layers} layers of hidden {config.hidden}, {_size(2 * config.parameters(0, 1))} in bf16, "
        f"{microbatches} microbatches, in {len(record.groups)} groups of "
        f"{', '.join(str(group.layers) for group in record.groups)} layers, two of them in "
        f"{_size(record.memory_bytes)}",
        figures={**asdict(config), "microbatches": microbatches},
    )
    yield from swapping_results(record)
    whole = train_alone(without_swapping(work), LARGE_ITERATIONS, keeps_weights=False)
    yield from beside_results(swapped, whole)


def swapping_results(record: SwappingRecord) -> Iterator[Result]:
    """Return what swapping took."""
    for way, size_bytes, copy_ns in (
        ("host to device", record.loaded_bytes, record.load_ns),
        ("device to host", record.returned_bytes, record.return_ns),
    ):
        rate = size_bytes / max(1, copy_ns)
        yield Result(
            f"{way}: {rate:.2f} GB/s, {_size(size_bytes // record.iterations)} in "
            f"{_ms(copy_ns / record.iterations)} an iteration",
            figures=rate,
        )
    for number, group in enumerate(record.groups, start=1):
        yield Result(
            f"group {number}: {group.layers} layers of {_size(group.size_bytes)}: forward {_ms(group.forward_ns)}, "
            f"backward {_ms(group.backward_ns)}, load {_ms(group.load_ns)}",
            figures=asdict(group),
        )
    planned = "" if record.planned_ns is None else f", planned {_ms(record.planned_ns)}"
    yield Result(
        f"both passes: {_ms(record.both_passes_ns)}, by the formula {_ms(record.formula_ns)} "
        f"({record.both_passes_ns / record.formula_ns:.3f} times that){planned}",
        figures={
            "both_passes_ns": record.both_passes_ns,
            "formula_ns": record.formula_ns,
            "planned_ns": record.planned_ns,
        },
    )
    yield Result(
        f"waits: {_ms(record.load_wait_ns / record.iterations)} an iteration for loads, "
        f"{_ms(record.return_wait_ns / record.iterations)} for gradients at its end",
        figures={"load_wait_ns": record.load_wait_ns, "return_wait_ns": record.return_wait_ns},
    )


def beside_results(swapped: LoneTraining, whole: LoneTraining) -> Iterator[Result]:
    """Return the same model's training without swapping beside the one with it."""
    error = swapped.loss_error(whole)
    yield Result(
        f"losses: off by {error:.1e} of {BF16_TOLERANCE:.0e} from those without swapping, from "
        f"{swapped.losses[0]:.4f} to {swapped.losses[-1]:.4f}",
        error <= BF16_TOLERANCE,
        {"swapped": swapped.losses, "whole": whole.losses},
    )
    ours, theirs = (median(each.iterations_ns[WARMUP:]) for each in (swapped, whole))
    yield Result(
        f"iteration but its optimizer: {_ms(ours)} with swapping, {_ms(theirs)} without ({ours / theirs:.3f} times)",
        figures={"swapped_ns": ours, "whole_ns": theirs},
    )
    ours, theirs = (median(each.optimizer_ns[WARMUP:]) for each in (swapped, whole))
    yield Result(
        f"optimizer: {_ms(ours)} in host memory, {_ms(theirs)} on the device",
        figures={"swapped_ns": ours, "whole_ns": theirs},
    )
    if swapped.peak_bytes is not None and whole.peak_bytes is not None:
        yield Result(
            f"peak memory of the GPU: {swapped.peak_bytes / 2**30:.2f} GiB with swapping, "
            f"{whole.peak_bytes / 2**30:.2f} GiB without",
            figures={"swapped_bytes": swapped.peak_bytes, "whole_bytes": whole.peak_bytes},
        )


def _size(size_bytes: float) -> str:
    return f"{size_bytes / 2**20:.1f} MiB"


def _ms(time_ns: float) -> str:
    return f"{time_ns / 1e6:.3f} ms"


def main(arguments: list[str]) -> int:
    """Print the results. Return 1 if a check has failed."""
    parser = argparse.ArgumentParser(prog="python -m studies.gpu_kit.check_swapping")
    parser.add_argument("device", nargs="?", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--layers", type=int, help="of the larger model; default: 12 on a GPU")
    parser.add_argument("--microbatches", type=int, help="of the larger model; default: 8 on a GPU")
    parser.add_argument("--output", type=Path, help="write the figures to this file, as JSON")
    given = parser.parse_args(arguments)
    config = replace(LARGE[given.device], layers=given.layers or LARGE[given.device].layers)
    microbatches = given.microbatches or LARGE_MICROBATCHES[given.device]
    begin_s, passed, written = time.monotonic(), True, []
    for results in (check(given.device), measure(given.device, config, microbatches)):
        with clocks_named(given.device):
            for result in results:
                passed &= result.passed is not False
                mark = {None: "      ", True: "ok    ", False: "FAILED"}[result.passed]
                print(f"{mark} {result.text}", flush=True)
                written.append({**asdict(result), "after_s": round(time.monotonic() - begin_s, 1)})
                if given.output is not None:
                    given.output.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    print(f"       {time.monotonic() - begin_s:.0f} s", flush=True)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
