"""The shipped programs on real TCP: what they send is what the algorithms' closed forms say, step by step."""

import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.present import present
from wanbed.results.records.schema import LinkSample
from wanbed.results.records.span_log import ITERATION
from wanbed.results.records.trial_tables import LINK_TABLE
from wanbed.runner.emulation.running_trial import TrialSpec
from wanbed.runner.emulation.trial import run_trial
from wanbed.runner.experiments.shipped_experiments import shipped_experiment
from wanbed.runner.planner.experiment_file import load_experiment
from wanbed.testbed.network.goodput import tcp_goodput_bps
from wanbed.testbed.testbed import bring_up

pytestmark = pytest.mark.measures

MIB = 2**20


class Steps:
    """The iterations of a trial: how long each took, and what each sent from one host to another, in bytes."""

    def __init__(self, ends_ns: list[int], counters: dict[tuple[str, str], list[tuple[int, int]]]) -> None:
        self.durations_ns = np.diff(ends_ns)
        self._ends_ns = ends_ns
        self._counters = counters

    def payload(self, source: str, destination: str) -> npt.NDArray[np.float64]:
        """What each iteration but the first one sent; headers of full packets are taken off."""
        times, wire_bytes = zip(*self._counters[source, destination], strict=True)
        sent: npt.NDArray[np.float64] = np.diff(np.interp(self._ends_ns, times, wire_bytes)) * tcp_goodput_bps(1)
        return sent


Run = Callable[..., Steps]


@pytest.fixture
def run(substrate: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs one variant of a shipped experiment at one latency; each step of its optimizer is an iteration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")

    def ran(name: str, variant: str, latency: str, iterations: int) -> Steps:
        shipped = present(shipped_experiment(name))
        own = f"variants[{variant}].program"
        overrides = ["sweep={}", f"topology.wan.latency={latency}", f"{own}.iterations={iterations}", f"{own}.warmup=1"]
        point = load_experiment(shipped.path, [*overrides, f"{own}.pattern=null"]).points()[0]
        (trial,) = (trial for trial in point.trials() if trial.variant == variant)
        with bring_up(point.topology, substrate=substrate) as testbed:
            record = run_trial(testbed, TrialSpec(trial, point, 1.0, {}))
        assert isinstance(record.spans, list)
        ends: dict[int, int] = {}
        for log in record.spans:
            for span in log.spans:
                if span.kind == ITERATION:
                    ends[span.iteration] = max(span.end_ns, ends.get(span.iteration, 0))
        counters: dict[tuple[str, str], list[tuple[int, int]]] = {}
        samples = record.tables[LINK_TABLE]
        assert isinstance(samples, Sequence)
        for sample in samples:
            assert isinstance(sample, LinkSample)
            if sample.scope == "node_pair":
                counters.setdefault((sample.source, sample.destination), []).append((sample.time_ns, sample.wire_bytes))
        return Steps([ends[iteration] for iteration in range(iterations)], counters)

    return ran


def in_a_ring(steps: Steps, hosts: tuple[str, ...]) -> npt.NDArray[np.float64]:
    """What each host sends to the next one, of whichever way around the ring carries more; the other has answers."""
    ways = [
        np.array([steps.payload(host, order[(place + 1) % len(order)]) for place, host in enumerate(order)])
        for order in (hosts, hosts[::-1])
    ]
    return max(ways, key=lambda way: float(way.sum()))


HOSTS = ("east-0", "west-0", "south-0")


def test_each_rank_of_ddp_sends_two_thirds_of_the_gradients_twice(run: Run) -> None:
    steps = run("ddp", "ddp", "5ms", 6)
    sent = in_a_ring(steps, HOSTS)[:, 1:]
    assert sent.mean(axis=1) == pytest.approx(np.full(3, 2 * 2 / 3 * 4 * MIB), rel=0.01)
    least_ns = 2 * 2 / 3 * 4 * MIB * 8 / tcp_goodput_bps(30e6) * 1e9
    assert 0.95 * least_ns < np.median(steps.durations_ns[1:]) < 2 * least_ns


# A program of torch on measured links is above; this one runs twice.
@pytest.mark.soak
def test_latency_counts_once_or_twice_in_each_hop_of_a_short_all_reduce(run: Run) -> None:
    near, far = (run("ddp", "ddp-small", latency, 14) for latency in ("5ms", "40ms"))
    for steps in (near, far):
        assert in_a_ring(steps, HOSTS)[:, 5:].mean() == pytest.approx(2 * 2 / 3 * MIB / 4, rel=0.02)
    longer_ns = np.median(far.durations_ns[5:]) - np.median(near.durations_ns[5:])
    assert 4 * 35e6 * 0.9 < longer_ns < 8 * 35e6 * 1.5


torchft = pytest.mark.skipif(find_spec("torchft") is None, reason="torchft is not installed; it has wheels for x86_64")


# That programs of torchft run at all is shown by tests/workloads/test_local_updates_beside_torchft.py.
@pytest.mark.soak
@torchft
def test_diloco_of_torchft_sends_the_model_every_eighth_step_and_nothing_between(run: Run) -> None:
    sent = run("torchft-diloco", "diloco", "5ms", 17).payload("east-0", "west-0")
    # The first iteration is not among them: the eighth is entry 6.
    averaging, between = sent[6::8], np.delete(sent, slice(6, None, 8))
    assert averaging == pytest.approx(np.full(2, 16 * MIB), rel=0.01)
    assert between.max() < 0.01 * 16 * MIB


@pytest.mark.soak
@torchft
def test_streaming_diloco_of_torchft_sends_a_quarter_of_the_model_every_second_step(run: Run) -> None:
    sent = run("torchft-diloco", "streaming", "5ms", 17).payload("east-0", "west-0")
    # A fragment leaves at the end of one step and travels during the next. Counters are read some times a second.
    pairs = sent[1:-1].reshape(-1, 2)
    assert pairs.sum(axis=1) == pytest.approx(np.full(len(pairs), 4 * MIB), rel=0.05)
    assert pairs.sum(axis=1).mean() == pytest.approx(4 * MIB, rel=0.02)
    assert (pairs[:, 1] > 4 * pairs[:, 0]).all()
