"""Check that a device trains as the CPU does, twice alike: ``python -m studies.gpu_kit.check_training DEVICE``."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from studies.gpu_kit.loopback_training import LoopbackTraining, TrainingError, train_over_loopback

TOLERANCES = {"fp32": 1e-4, "bf16": 1e-2}
"""The largest relative difference of a loss on the device from that on the CPU."""

CASES = (
    ("1f1b", "fp32"),
    ("varuna", "bf16"),  # recomputes its forwards
    ("zb-h1", "fp32"),  # splits its backwards
    ("torch-gpipe", "fp32"),
    ("torch-1f1b", "bf16"),
    ("torch-zb", "fp32"),
    ("torch-ddp", "fp32"),
)


@dataclass(frozen=True)
class Verdict:
    """The outcome of one case: ``passed``, and ``text`` in one line."""

    passed: bool
    text: str


def check(device: str, folder: Path, cases: tuple[tuple[str, str], ...] = CASES) -> Iterator[Verdict]:
    """Train every case on the CPU and twice on ``device``. Yield its verdict."""
    for schedule, precision in cases:
        name = f"{schedule} {precision}"
        try:
            expected, one, again = (
                train_over_loopback(schedule, precision, where, folder / f"{schedule}-{precision}-{number}")
                for number, where in enumerate(("cpu", device, device))
            )
        except TrainingError as failure:
            yield Verdict(False, f"{name}: {failure}")
            continue
        yield judged(name, expected, one, again, TOLERANCES[precision])


def judged(
    name: str, expected: LoopbackTraining, one: LoopbackTraining, again: LoopbackTraining, tolerance: float
) -> Verdict:
    """Return the verdict of one case. Bits may differ only between devices."""
    error, same = one.loss_error(expected), one.same_bits(again)
    return Verdict(
        # A comparison with nan is false.
        error <= tolerance and same,
        f"{name}: losses off by {error:.1e} of {tolerance:.0e}, {'the same' if same else 'OTHER'} bits the second "
        f"time, on {', '.join(sorted(set(one.devices)))}",
    )


def main(arguments: list[str]) -> int:
    """Print the verdicts. Return 1 if a case has failed."""
    passed = True
    with TemporaryDirectory() as folder:
        for verdict in check(arguments[0] if arguments else "cuda", Path(folder)):
            passed &= verdict.passed
            print(f"{'ok    ' if verdict.passed else 'FAILED'} {verdict.text}", flush=True)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
