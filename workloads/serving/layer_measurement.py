"""Measure how long a layer takes here, before a service starts.

Run it as ``python -m workloads.serving.layer_measurement PLAN.json``.

Exit status 0 once the result has been written; else 1 and one line on standard error.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low

from workloads.inference.inference_work import InferenceWork
from workloads.parent_process import die_with_parent
from workloads.plan_file import read_plan, write_plan
from workloads.prefill.profile_fit import TimedChunk

CHUNKS = 4
"""Of a prompt: the last attends to three times as many tokens before it."""

_ROUNDS = 9
_PARTS = (1, 2, 4)
"""Chunks of the usual size, and of a half and a quarter of it."""


@dataclass(frozen=True)
class MeasurementConfig:
    """Prompts in chunks of ``chunk_tokens`` and fewer through the first ``layers`` layers of the work's model.

    ``result`` is a file that receives a list of tokens, prior tokens and the nanoseconds of one layer.
    """

    inference: InferenceWork
    layers: int
    chunk_tokens: int
    result: str
    parent_pid: int | None = None

    def write(self, path: Path) -> None:
        """Write the plan as JSON."""
        write_plan(self, path)


def measure(plan: MeasurementConfig) -> list[TimedChunk]:
    """Return the median times of chunks in one layer. The sizes take turns, so that a disturbance hits all of them."""
    # The runner, which reads what comes of it, never loads torch.
    from workloads.serving.gpu.prefill_compute import PrefillCompute  # noqa: PLC0415

    compute = PrefillCompute(plan.inference, range(plan.layers))
    sizes = sorted({max(1, plan.chunk_tokens // part) for part in _PARTS})
    seen: dict[tuple[int, int], list[int]] = {}
    for _ in range(_ROUNDS):
        for size in sizes:
            for number, time_ns in enumerate(compute.time_chunks(size, CHUNKS)):
                seen.setdefault((size, number * size), []).append(time_ns)
    return [TimedChunk(*chunk, median_low(times_ns)) for chunk, times_ns in seen.items()]


def main(arguments: list[str]) -> int:
    """Run the measurement of the plan named on the command line. Returns the exit status."""
    if len(arguments) != 1:
        _say("usage: python -m workloads.serving.layer_measurement PLAN.json")
        return 1
    try:
        plan = read_plan(MeasurementConfig, Path(arguments[0]))
        if plan.parent_pid is not None:
            die_with_parent(plan.parent_pid)
        Path(plan.result).write_text(json.dumps(measure(plan)), encoding="utf-8")
    except (ValueError, OSError, RuntimeError) as failure:
        _say(f"{type(failure).__name__}: {failure}")
        return 1
    return 0


def _say(line: str) -> None:
    print(f"wanbed layer measurement: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
