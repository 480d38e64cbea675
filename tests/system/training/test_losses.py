"""Real training on real text is evaluated on what it never saw, whoever schedules it."""

from pathlib import Path
from typing import Any

import pytest

from tests.system.training.forked_ranks import trained
from wanbed.results.reading.losses import loss_trials

ITERATIONS, SEED = 5, 3
EXPERIMENT: dict[str, Any] = {
    "name": "losses",
    "topology": {
        "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
        # The second half of an iteration, when nothing is sent, lasts until counters are read again.
        "wan": {"latency": "100ms", "rate": "100Mbit"},
    },
    "model": {"layers": 2, "hidden": 32, "context": 32, "heads": 2, "vocabulary": 256},
    "compute": {"kind": "torch", "device": "cpu", "checkpointing": False},
    # What the machine carries at this moment is not the question: no loss depends on it.
    "dilation": 1,
    "training": {
        "stages": 2,
        "microbatches": 4,
        "iterations": ITERATIONS,
        "precision": "fp32",
        "learning_rate": 0.01,
        "text": "python-topics",
        "evaluate_every": 2,
        "held_out_sequences": 8,
        "vary_seed": True,
    },
    "variants": [{"name": name, "schedule": name} for name in ("1f1b", "torch-1f1b")],
    "seed": SEED,
}


def test_what_is_learnt_is_recorded_over_time_and_evaluated_alike(tmp_path: Path) -> None:
    run = trained(EXPERIMENT, tmp_path)
    ours, peers = loss_trials(run)
    for trial in (ours, peers):
        assert trial.seed == SEED
        assert trial.held_out is not None
        assert trial.training.iterations.tolist() == list(range(ITERATIONS))
        assert trial.held_out.iterations.tolist() == [1, 3, 4]
        assert trial.held_out.loss[-1] < trial.held_out.loss[0] < 5.6, "ln 256 is 5.55: it has learnt"
        assert trial.training.tokens is not None
        assert trial.training.tokens[-1] == ITERATIONS * 4 * 32
        assert all(trial.training.time_s[1:] > trial.training.time_s[:-1])
        # Four activations there and four gradients back, of 4 KiB each, in every iteration. Counters are read at times
        # of their own: some bytes of the first iteration may count before its start.
        assert trial.training.wan_bytes is not None
        assert trial.training.wan_bytes[-1] > (ITERATIONS - 1) * 8 * 4096
    assert ours.held_out is not None
    assert peers.held_out is not None
    assert ours.training.loss == pytest.approx(peers.training.loss, rel=1e-5)
    assert ours.held_out.loss == pytest.approx(peers.held_out.loss, rel=1e-5)
    for stored in run.trials:
        assert stored.facts["losses"] == pytest.approx(list(ours.training.loss), rel=1e-5)
        assert stored.facts["text"]["name"] == "python-topics"
    # What is kept for the evaluation is gone after it.
    assert not list(run.path.rglob("*.npz"))
