"""Measure what timing costs a rank: ``python -m studies.gpu_kit.check_events DEVICE``, as a share of an iteration.

Forwards of a stage are run with the events and comparisons of clocks of a rank, and without: there the host only waits
for the end of each, as a schedule needs. The two take turns, because a device is not the same from one second to the
next. They are also compared with a third, which is the second one again, and shows what this machine can tell.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch

from studies.gpu_kit.clocks import clocks_named
from wanbed.workloads.compute.device.device_measurement import DeviceMeasurement
from wanbed.workloads.compute.device.torch_device import TorchDevice, create_device
from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.gpt.gpt_stage import DTYPES, build_stage

SPANS, ROUNDS = 25, 31
"""The spans of an iteration: 8 microbatches, each with forward, recompute and backward, and an optimizer's step."""
ALLOWED = 0.01
"""The largest share of an iteration."""

MODEL = {
    "cuda": GptConfig(layers=6, hidden=4096, context=4096, heads=32, vocabulary=512),
    "cpu": GptConfig(layers=3, hidden=512, context=256, heads=8, vocabulary=512),
}
"""The middle of three stages is timed: on a GPU two layers of gpt-a, as it has in a stage of six."""


@dataclass(frozen=True)
class Overhead:
    """Seconds of an iteration that is timed, of one that is not, and of one more that is not; each a median.

    ``read_s`` is the part of the timed one in which its events are read and the clocks compared, after its last span.
    """

    timed_s: float
    bare_s: float
    again_s: float
    read_s: float

    @property
    def share(self) -> float:
        """The part that timing adds to an iteration, a fraction; below 0 if it is less than the machine's noise."""
        return self.timed_s / self.bare_s - 1


def measure(device: TorchDevice, config: GptConfig, rounds: int = ROUNDS) -> Overhead:
    """Run iterations of the three kinds in turns, after one turn to warm up."""
    dtype = DTYPES["bf16" if device.runtime is not None else "fp32"]
    stage = build_stage(config, 1, 3, 0, dtype).to(device.device)
    inputs = torch.randn(1, config.context, config.hidden, dtype=dtype).to(device.device)

    def work() -> None:
        with torch.no_grad():
            stage(inputs)

    measurement = DeviceMeasurement(device)

    def spans() -> None:
        for _ in range(SPANS):
            measurement.timed("forward", work)

    def bare() -> None:
        for _ in range(SPANS):
            _waited_for(device, work)

    seconds = [[_seconds(run) for run in (spans, measurement.resolve, bare, bare)] for _ in range(1 + rounds)][1:]
    timed, bare_s, again_s, read_s = zip(*((a + b, c, d, b) for a, b, c, d in seconds), strict=True)
    return Overhead(median(timed), median(bare_s), median(again_s), median(read_s))


def _waited_for(device: TorchDevice, work: Callable[[], None]) -> None:
    work()
    if device.runtime is not None:
        done = device.runtime.event()
        device.runtime.compute_stream().record(done)
        done.wait()


def _seconds(run: Callable[[], object]) -> float:
    begin_s = time.perf_counter()
    run()
    return time.perf_counter() - begin_s


def main(arguments: list[str]) -> int:
    """Print the overhead. Return 1 if it is above what is allowed."""
    name = arguments[0] if arguments else "cuda"
    with clocks_named(name):
        overhead = measure(create_device(name), MODEL[name])
    passed = overhead.share <= ALLOWED
    print(
        f"{'ok    ' if passed else 'FAILED'} {SPANS} spans: {overhead.timed_s * 1e3:.3f} ms timed, "
        f"{overhead.bare_s * 1e3:.3f} ms without: {overhead.share:.3%} of {ALLOWED:.0%} more, "
        f"{(overhead.timed_s - overhead.bare_s) / SPANS * 1e6:.1f} us a span; {overhead.read_s * 1e3:.3f} ms of it to "
        f"read the events; the second without: {overhead.again_s * 1e3:.3f} ms"
    )
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
