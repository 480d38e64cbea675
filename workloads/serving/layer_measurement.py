"""Measure how long a model's layer takes on this machine, before a prefill service starts.

Run it as ``python -m wanbed.workloads.serving.layer_measurement CONFIG.json``.

The exit status is 0 after the result has been written, else 1 with one line on standard error.
"""

import json
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median_low

from wanbed.ground.dataclass_json import read_config, write_config
from wanbed.workloads.bubbletea.prefill_profile import TimedChunk
from wanbed.workloads.host_process import die_with_parent, run_configured
from wanbed.workloads.inference.inference_model import InferenceWork

_CHUNKS = 4
"""The number of chunks in a measured prompt. The last one has three times as many prior tokens as its own."""

_ROUNDS = 9
_PARTS = (1, 2, 4)
"""Measure chunks of the configured size, and of a half and a quarter of it."""


@dataclass(frozen=True)
class MeasurementConfig:
    """Measure chunks of up to ``chunk_tokens`` tokens in the first ``layers`` layers of the model.

    ``result`` is the path of the file that receives the list of (tokens, prior tokens, nanoseconds of one layer).
    """

    inference: InferenceWork
    layers: int
    chunk_tokens: int
    result: str
    parent_pid: int | None = None

    def write(self, path: Path) -> None:
        """Write the configuration as JSON."""
        write_config(self, path)


def measure(config: MeasurementConfig) -> list[TimedChunk]:
    """Return the median time of each chunk in one layer. Sizes alternate, so that a disturbance affects all of them."""
    # Import torch only here: the runner imports this module too, and never loads torch.
    from wanbed.workloads.serving.prefill_compute import PrefillCompute  # noqa: PLC0415

    compute = PrefillCompute(config.inference, range(config.layers), config.chunk_tokens)
    sizes = sorted({max(1, config.chunk_tokens // part) for part in _PARTS})
    measured: dict[tuple[int, int], list[int]] = {}
    for _ in range(_ROUNDS):
        for size in sizes:
            for number, time_ns in enumerate(compute.time_chunks(size, _CHUNKS)):
                measured.setdefault((size, number * size), []).append(time_ns)
    return [TimedChunk(*chunk, median_low(times_ns)) for chunk, times_ns in measured.items()]


def _write_measured(config: MeasurementConfig) -> None:
    """Measure, and write the result to the file that the configuration names."""
    if config.parent_pid is not None:
        die_with_parent(config.parent_pid)
    Path(config.result).write_text(json.dumps(measure(config)), encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Run the measurement whose configuration file is named on the command line. Return the exit status."""
    return run_configured(
        arguments,
        module="wanbed.workloads.serving.layer_measurement",
        name="wanbed layer measurement",
        read=partial(read_config, MeasurementConfig),
        run=_write_measured,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
