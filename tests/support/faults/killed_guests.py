"""Kill the gateway guest of one trial after the other, at moments that a seed decides, on the real clock."""

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.faults.random_moments import ENDED_S
from tests.support.runner.wanbed_command import WANBED
from tests.support.testbed.processes import command_line
from tests.support.until import until_within
from wanbed.results import load
from wanbed.results.metrics.iterations import iteration_windows
from wanbed.results.records.run_store import TRIAL_FACTS, read_json
from wanbed.testbed.claims.processes import marked_processes, process_start_ticks
from wanbed.testbed.claims.registry import claims

_LATEST_S = 8.0
"""The latest moment after the ranks of a trial are there: an undisturbed one takes longer on any machine."""
ITERATIONS = 250
_PATIENCE_S = 240.0


@dataclass(frozen=True)
class KilledGuest:
    """What followed: after how long the trial had its record and nothing of its network was left."""

    after_s: float
    recorded_s: float
    clean_s: float
    reason: str
    wrong: tuple[str, ...]


def experiment(moments: int) -> dict[str, object]:
    """An experiment with a trial for each moment, and one more that nobody disturbs."""
    return {
        "topology": {
            "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
            "wan": {"latency": "5ms", "rate": "50Mbit"},
        },
        "compute": {"forward": "5ms", "backward": "10ms", "activation": "16KiB"},
        "training": {"microbatches": 4, "iterations": ITERATIONS},
        "dilation": 1,
        "repeats": moments + 1,
    }


def killed_guests(moments: int, folder: Path) -> Iterator[KilledGuest]:
    """Run the experiment with ``--keep-going``, kill each trial's guest but the last one's, and yield what followed.

    Assert that the last trial is whole, that the exit status is 4, and that nothing is left in the end.
    """
    drawn = random.Random("guest at random moments")
    file = folder / "experiment.yaml"
    file.write_text(json.dumps(experiment(moments)))
    command = [*WANBED, "run", str(file), "--substrate", "guest", "--keep-going", "--runs", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            for moment in range(moments):
                yield _killed(process.pid, folder, moment, drawn.uniform(0, _LATEST_S))
            _, said = process.communicate(timeout=_PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 4, said
    (path,) = (each.parent for each in folder.glob("*/manifest.json"))
    run = load(path)
    assert run.complete
    assert len(run.trials) == moments + 1
    assert "faults" not in run.trials[-1].facts
    assert len(iteration_windows(run.spans[run.spans["repeat"] == moments])) == ITERATIONS
    assert not [claim for claim in claims() if claim.record.owner_pid == process.pid]


def _killed(owner: int, folder: Path, moment: int, after_s: float) -> KilledGuest:
    until_within(_PATIENCE_S, lambda: any("wanbed.workloads.rank" in command_line(pid) for pid in _processes(owner)))
    time.sleep(after_s)
    assert len(_records(folder)) == moment, "the trial was over before its guest was killed"
    network = {pid: process_start_ticks(pid) for pid in _processes(owner)}
    killed_s = time.monotonic()
    for pid in network:
        if "linux.uml" in command_line(pid):
            # The first of a guest's processes takes the others with it.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    until_within(_PATIENCE_S, lambda: len(_records(folder)) > moment)
    recorded_s = time.monotonic() - killed_s
    until_within(_PATIENCE_S, lambda: not any(process_start_ticks(pid) == at for pid, at in network.items()))
    clean_s = time.monotonic() - killed_s
    faults = read_json(_records(folder)[moment]).get("faults", {})
    wrong = []
    if (faults.get("outcome"), faults.get("planned")) != ("failed", False):
        wrong.append(f"marked {faults.get('outcome')}")
    wrong += [
        f"{what} after {took_s:.1f} s"
        for what, took_s in (("recorded", recorded_s), ("clean", clean_s))
        if took_s > ENDED_S
    ]
    return KilledGuest(after_s, recorded_s, clean_s, str(faults.get("reason")), tuple(wrong))


def _records(folder: Path) -> list[Path]:
    """The records of finished trials, in the order of repeats."""
    return sorted(folder.glob(f"*/trials/*/*/*/{TRIAL_FACTS}"), key=lambda path: int(path.parent.name.rsplit("-")[-1]))


def _processes(owner: int) -> list[int]:
    """The processes of the testbeds of a command, but its own."""
    own = [claim.record.identifier for claim in claims() if claim.record.owner_pid == owner]
    return [pid for each in own for pid in marked_processes(each) if pid != owner]
