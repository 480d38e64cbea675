"""Let a rank, a host or a gateway fail at moments that a seed decides, in virtual time, and judge what followed.

One run has a sweep point for each moment, and before and after them one in which nothing fails. So its last trial shows
whether failures disturb the rest.
"""

import json
import os
import random
import secrets
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.runner.wanbed_command import WANBED
from wanbed.results import load
from wanbed.results.metrics.iterations import iteration_windows
from wanbed.results.reading.run import Run
from wanbed.testbed.claims.processes import marked_processes
from wanbed.testbed.claims.registry import claims

KINDS = ("rank", "host", "gateway")
ENDED_S = 15.0
"""How long after a failure its trial may go on, at most."""
HOSTS = ("east-0", "east-1", "west-0", "west-1")
ITERATIONS = 8
_MARK = "WANBED_FAULTS_TESTED"
"""The variable in the environment of everything that a command starts."""
_TOLD = 2000
"""The most characters that are told of a command that failed, its last ones."""
_NEVER, _NEVER_EITHER = {"rank": 0, "at": "1h"}, {"rank": 0, "at": "2h"}
"""Faults after the end: the trial is undisturbed, and its record says when training began."""


def experiment(faults: Sequence[Mapping[str, Any]], recovery: str) -> dict[str, Any]:
    """An experiment with a sweep point for each fault, and one before and one after in which nothing fails."""
    return {
        "topology": {
            "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}],
            "wan": {"latency": "20ms", "rate": "1Gbit"},
        },
        "compute": {"forward": "20ms", "backward": "40ms", "activation": "256KiB"},
        "training": {"microbatches": 4, "iterations": ITERATIONS},
        "clock": "virtual",
        "recovery": recovery,
        "sweep": {"fail": [[each] for each in (_NEVER, *faults, _NEVER_EITHER)]},
    }


def drawn_faults(kind: str, moments: int, duration_ms: int) -> list[dict[str, Any]]:
    """So many faults of a kind within a training of that duration; the same ones whenever they are drawn."""
    drawn = random.Random(f"{kind} at random moments")
    choices = {"rank": range(len(HOSTS)), "host": HOSTS, "gateway": ("east", "west")}[kind]
    return [{kind: drawn.choice(choices), "at": f"{drawn.randrange(1, duration_ms)}ms"} for _ in range(moments)]


@dataclass(frozen=True)
class Course:
    """How an undisturbed trial trained: its whole duration, and its longest iteration, from one's end to the next.

    ``done_ns`` is when the first rank had computed all, from the begin on: it may have ended then.
    """

    duration_ns: int
    done_ns: int
    longest_ns: int

    @classmethod
    def of(cls, run: Run, position: int) -> "Course":
        """Read it from a trial of a run."""
        trial = run.trials[position]
        assert trial.facts["faults"]["outcome"] == "undisturbed"
        spans = run.spans
        ends = iteration_windows(spans[spans["sweep_point"] == trial.point])["end_ns"].tolist()
        began_ns = trial.facts["faults"]["began_ns"]
        assert len(ends) == ITERATIONS
        last = spans[(spans["sweep_point"] == trial.point) & (spans["iteration"] == ITERATIONS - 1)]
        done_ns = int(last.groupby("rank")["end_ns"].max().min())
        times_ns = [end - begin for begin, end in zip([began_ns, *ends], ends, strict=False)]
        return cls(ends[-1] - began_ns, done_ns - began_ns, max(times_ns))


@dataclass(frozen=True)
class Moment:
    """What followed one failure: ``wrong`` names everything that should not be."""

    fault: str
    at_s: float
    outcome: str
    detected_s: float | None
    recovered_s: float | None
    iterations_lost: int
    lost_work_s: float
    wrong: tuple[str, ...]


def judged(facts: Mapping[str, Any], recovery: str, undisturbed: Course) -> Moment:
    """Say what followed the failure of a trial with the record ``facts``."""
    faults = facts["faults"]
    (injected,) = faults["injected"]
    if faults["outcome"] == "undisturbed" and injected["due_ns"] - faults["began_ns"] > undisturbed.done_ns:
        # Its ranks had ended before.
        at_s = (injected["applied_ns"] - faults["began_ns"]) / 1e9
        return Moment(str(injected["fault"]), at_s, faults["outcome"], None, None, 0, 0.0, ())
    disturbance, *others = faults["disturbances"]
    detected_ns, recovered_ns = disturbance["time_to_detect_ns"], disturbance["time_to_recover_ns"]

    def wrong() -> Iterator[str]:
        if others:
            yield f"{len(others)} more failures, which nobody asked for"
        if injected["applied_ns"] - injected["due_ns"] > 1_000_000:
            yield f"applied {(injected['applied_ns'] - injected['due_ns']) / 1e6:.1f} ms late"
        if detected_ns is None:
            yield f"ranks {disturbance['unaware']} never noticed"
        elif detected_ns > ENDED_S * 1e9:
            yield f"ended after {detected_ns / 1e9:.1f} s"
        if recovery == "none":
            if (faults["outcome"], faults["planned"]) != ("failed", True):
                yield f"marked {faults['outcome']}"
            return
        if faults["outcome"] != "recovered":
            yield f"marked {faults['outcome']}: {faults['reason']}"
            return
        if faults["iterations_completed"] != ITERATIONS:
            yield f"{faults['iterations_completed']} iterations at the end"
        if disturbance["lost_work_ns"] > undisturbed.longest_ns:
            lost_s, most_s = disturbance["lost_work_ns"] / 1e9, undisturbed.longest_ns / 1e9
            yield f"lost {lost_s:.3f} s of work, an iteration takes {most_s:.3f} s"

    return Moment(
        str(injected["fault"]),
        disturbance["at_ns"] / 1e9 - faults["began_ns"] / 1e9,
        faults["outcome"],
        None if detected_ns is None else detected_ns / 1e9,
        None if recovered_ns is None else recovered_ns / 1e9,
        disturbance["iterations_lost"],
        disturbance["lost_work_ns"] / 1e9,
        tuple(wrong()),
    )


def moments_of(run: Run, faults: Sequence[Mapping[str, Any]], recovery: str) -> list[Moment]:
    """Judge every failure of a run. Assert that the trial after them all is as the one before them."""
    assert len(run.trials) == len(faults) + 2
    before, after = Course.of(run, 0), Course.of(run, -1)
    assert abs(after.duration_ns - before.duration_ns) < before.duration_ns / 1000, (before, after)
    return [judged(trial.facts, recovery, before) for trial in run.trials[1:-1]]


def run_of(document: Mapping[str, Any], folder: Path) -> Run:
    """Run an experiment with the command, and read its run.

    Assert that the command ends as if nothing had failed, and that no process and no claim is left of it.
    """
    folder.mkdir()
    file = folder / "experiment.yaml"
    file.write_text(json.dumps(document))
    mark = secrets.token_hex(16)
    command = [*WANBED, "run", str(file), "--runs", str(folder), "--json"]
    environment = {**os.environ, _MARK: mark}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True
    ) as process:
        printed, said = process.communicate()
    assert process.returncode == 0, said[-_TOLD:]
    assert not marked_processes(mark, _MARK)
    assert not [claim for claim in claims() if claim.record.owner_pid == process.pid]
    run = load(Path(json.loads(printed)["run"]))
    assert run.complete
    return run
