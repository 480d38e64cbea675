"""torchft's DiLoCo beside wanbed's: losses, bytes and the time of a synchronisation, from runs of the experiment.

``python -m tests.bench.bench_diloco_beside_torchft RUN...`` prints the table of docs/local-updates.md from runs that
``wanbed run diloco-beside-torchft`` left. With several runs the times are of all of them.
"""

import sys
from pathlib import Path
from statistics import median

import numpy as np

from tests.support.runner.diloco_beside_torchft import CLOSED_FORM_BYTES, synchronised
from wanbed.results.reading.run import load_run


def main(paths: list[str]) -> None:
    """Print a row for each variant."""
    runs = [load_run(Path(path)) for path in paths]
    least_s = CLOSED_FORM_BYTES * 8 / runs[0].calibration["configured_goodput_bps"].min()
    print(f"closed form: {CLOSED_FORM_BYTES / 2**20:.2f} MiB, {least_s:.2f} s at least\n")
    print("| variant | largest difference of a loss | MiB a synchronisation | seconds: median, shortest to longest |")
    print("| --- | --- | --- | --- |")
    first, *_ = runs[0].variants
    own = np.array(synchronised(runs[0], first).losses)
    for variant in runs[0].variants:
        found = [synchronised(run, variant) for run in runs]
        differs = max(float(np.abs(np.array(each.losses) - own).max()) for each in found)
        mib = [sent / 2**20 for each in found for sent in each.sent_bytes]
        times_s = [time_s for each in found for time_s in each.durations_s]
        print(
            f"| {variant} | {differs:.1e} | {min(mib):.2f} to {max(mib):.2f} | "
            f"{median(times_s):.2f}, {min(times_s):.2f} to {max(times_s):.2f} |"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
