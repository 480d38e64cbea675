"""Prefill in the bubbles of an emulated training, by one run that is started as a user would.

Two datacenters of two GPUs train a pipeline of four stages over 20 ms, which leaves bubbles of tens of milliseconds.
Of the two variants, which are alike, the second one loses its controllers in the middle of the trial.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from tests.support.runner.wanbed_command import BUSY_OR_NOT, WANBED
from tests.support.testbed.processes import children
from wanbed import results
from wanbed.results.reading.run import Run
from wanbed.results.records.span_log import COMPUTE_KINDS, PREFILL

# What it shows over two datacenters, test_computed_prefill.py shows over one, and tests/workloads/serving/
# test_processes.py of a controller that is killed.
pytestmark = [pytest.mark.measures, pytest.mark.soak]

ITERATIONS, STAGES, MICROBATCHES = 12, 4, 4
SERVED, ORPHANED = "served", "orphaned"
DATACENTERS = ("east", "west")
KV_TOKEN_BYTES = 512

EXPERIMENT: dict[str, Any] = {
    "name": "prefill",
    "topology": {
        "datacenters": [{"name": name, "hosts": 2, "serving_hosts": 1} for name in DATACENTERS],
        "wan": {"latency": "20ms", "rate": "200Mbit"},
        "intra": {"rate": "500Mbit", "latency": "50us"},
    },
    "compute": {"forward": "20ms", "backward": "40ms", "activation": "128KiB"},
    "training": {"stages": STAGES, "microbatches": MICROBATCHES, "iterations": ITERATIONS, "warmup": 5},
    "prefill": {
        "rate": "12/s",
        "prompt": {"median": 200, "spread": 1.5},
        "chunk": 128,
        "slo": "4s",
        "guard": "3ms",
        "kv": f"{KV_TOKEN_BYTES}B",
        "activation": "512B",
    },
    "variants": [{"name": name, "schedule": "1f1b"} for name in (SERVED, ORPHANED)],
    "dilation": 1,
}


def controllers_below(pid: int) -> dict[int, Path]:
    """The controllers that the run ``pid`` has started, with the folders of their trials."""
    found = {}
    for child in children(pid):
        # A process that is just ending has no command any more.
        with suppress(OSError):
            command = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
            if b"wanbed.workloads.serving.controller_process" in command:
                module = command.index(b"wanbed.workloads.serving.controller_process")
                found[child] = Path(os.fsdecode(command[module + 1])).parent
    return found


def prefills(trial: Path) -> bool:
    """Whether any rank has logged an iteration in which it prefilled."""
    return any(f'["{PREFILL}"' in log.read_text() for log in trial.glob("rank-*.spans"))


def kill_the_second_controllers(running: "subprocess.Popen[str]") -> None:
    """Those of the first trial live until it is over; those of the next one until something has been prefilled."""
    first: set[int] = set()
    while running.poll() is None:
        controllers = controllers_below(running.pid)
        first = first or set(controllers if len(controllers) == len(DATACENTERS) else ())
        second = controllers.keys() - first
        with suppress(OSError):
            if first and len(second) == len(DATACENTERS) and prefills(controllers[next(iter(second))]):
                for controller in second:
                    os.kill(controller, signal.SIGKILL)
                return
        time.sleep(0.05)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("prefill")
    (folder / "prefill.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    command = [*WANBED, "run", "prefill.yaml", "--json"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        kill_the_second_controllers(running)
        output, errors = running.communicate(timeout=120)
    assert running.returncode in BUSY_OR_NOT, errors
    return results.load(folder / json.loads(output)["run"])


def facts(run: Run, variant: str) -> Mapping[str, Any]:
    (trial,) = [trial for trial in run.trials if trial.variant == variant]
    prefill: Mapping[str, Any] = trial.facts["prefill"]
    return prefill


def requests(run: Run, variant: str) -> pd.DataFrame:
    rows = run.prefill_requests
    return rows[rows["variant"] == variant]


@pytest.mark.parametrize("variant", [SERVED, ORPHANED])
def test_training_does_all_of_its_work(run: Run, variant: str) -> None:
    spans = run.spans[run.spans["variant"] == variant]
    for kind in ("forward", "backward"):
        assert (spans["kind"] == kind).sum() == STAGES * MICROBATCHES * ITERATIONS


@pytest.mark.parametrize("variant", [SERVED, ORPHANED])
def test_no_gpu_ever_does_two_things_at_once(run: Run, variant: str) -> None:
    spans = run.spans[(run.spans["variant"] == variant) & run.spans["kind"].isin([*COMPUTE_KINDS, PREFILL])]
    filled = 0
    for _, own in spans.groupby(["host", "gpu"]):
        used = sorted(zip(own["start_ns"], own["end_ns"], strict=True))
        assert all(end_ns <= start_ns for (_, end_ns), (start_ns, _) in pairwise(used))
        filled += (own["kind"] == PREFILL).sum()
    assert filled > 0


def test_every_request_has_one_outcome_and_they_add_up(run: Run) -> None:
    rows, text = requests(run, SERVED), facts(run, SERVED)["counts"]
    outcomes = {name: text[name] for name in ("admitted", "held", "off_loaded")}
    rejected = sum(count for name, count in text.items() if name.startswith("rejected_"))
    assert sum(outcomes.values()) + rejected == len(rows) == rows["request"].nunique()
    assert rows["request"].tolist() == list(range(len(rows)))
    assert (rows["outcome"] == "admitted").sum() == text["admitted"] > 20
    spans = run.spans[(run.spans["variant"] == SERVED) & (run.spans["kind"] == PREFILL)]
    assert set(spans["request"]) <= set(rows.loc[rows["outcome"] == "admitted", "request"])


def test_caches_of_requests_really_crossed_to_the_decode_hosts(run: Run) -> None:
    rows = requests(run, SERVED)
    moved = rows[rows["kv_moved_ns"].notna()]
    assert (moved["kv_bytes"] == moved["prompt_tokens"] * KV_TOKEN_BYTES).all()
    begun = rows[rows["started_ns"].notna()]
    assert moved["kv_bytes"].sum() <= facts(run, SERVED)["kv_bytes"] <= begun["kv_bytes"].sum()
    assert (moved["arrival_ns"] <= moved["started_ns"]).all()
    assert (moved["prefilled_ns"] <= moved["kv_moved_ns"]).all()


def test_nothing_went_wrong_where_nobody_was_killed(run: Run) -> None:
    assert facts(run, SERVED)["faults"] == []


def test_a_trial_that_lost_its_controllers_says_so(run: Run) -> None:
    faults = facts(run, ORPHANED)["faults"]
    for datacenter in DATACENTERS:
        assert f"the prefill controller of {datacenter} ended with status -9" in faults
    assert sum("ended early: the controller on" in fault for fault in faults) == STAGES
    assert len(requests(run, ORPHANED)) == 0
