"""The experiments that are shipped do what their comments promise."""

from pathlib import Path

import pytest

from tests.support.present import present
from wanbed import runner
from wanbed.runner.planner.experiment_file import load_experiment
from wanbed.runner.resolve.dilation import choose_dilation
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.workloads.bubbletea.request import count_outcomes

FOLDER = Path(runner.__file__).parent / "experiments"


def one_connection_bps(point: SweepPoint) -> float:
    """Window over round trip, or the node pair's cap where that is less."""
    conditions = point.topology.wan[0].conditions
    window_bytes = point.variants[0].transport.window
    return min(window_bytes * 8 / (2 * conditions.latency_ns * 1e-9), present(conditions.pair_rate_bps))


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_experiment_loads(path: Path) -> None:
    assert load_experiment(path).points()


def test_the_demo_compares_one_connection_with_many_at_10_and_40_ms() -> None:
    experiment = load_experiment(FOLDER / "demo.yaml")
    assert [point.values for point in experiment.points()] == [
        {"topology.wan.latency": "10ms"},
        {"topology.wan.latency": "40ms"},
    ]
    for point in experiment.points():
        assert [len(datacenter.hosts) for datacenter in point.topology.datacenters] == [2, 2, 2]
        assert [(variant.spec.schedule, variant.transport.connections) for variant in point.variants] == [
            ("gpipe", 1),
            ("gpipe", "auto"),
        ]


def test_the_demo_needs_no_dilation_where_1_gbit_is_carried() -> None:
    for point in load_experiment(FOLDER / "demo.yaml").points():
        assert choose_dilation(point.demand.total_bps, 10**9, "auto") == 1.0


def test_one_connection_of_the_demo_is_limited_by_its_window_as_the_comment_says() -> None:
    near, far = load_experiment(FOLDER / "demo.yaml").points()
    for point, rate_mbps in ((near, 143), (far, 36)):
        assert one_connection_bps(point) / 1e6 == pytest.approx(rate_mbps, abs=0.6)


def test_the_first_experiment_is_two_datacenters_of_one_host() -> None:
    (point,) = load_experiment(FOLDER / "first.yaml").points()
    assert [host.name for host in point.topology.hosts] == ["east-0", "west-0"]
    assert point.variants[0].placement.stages == 2


# test_prefill_simulation.py has the rules on small examples.
@pytest.mark.soak
def test_at_saturation_planned_prefill_fills_the_bubbles_and_training_does_not_notice() -> None:
    point = load_experiment(FOLDER / "bubbletea.yaml", ["sweep={}"], engine="simulate").points()[0]
    iterations, warmup = point.spec.training.iterations, point.spec.training.warmup
    alone, planned, greedy = (simulate_variant(point.topology, variant, iterations) for variant in point.variants)
    assert planned.prefill is not None
    assert greedy.prefill is not None
    assert planned.utilization(12, warmup, with_prefill=True) > 0.94
    assert planned.prefill.deadline_overruns == 0
    assert planned.windows_ns == alone.windows_ns
    assert greedy.prefill.deadline_overruns > 1000
    assert greedy.iteration_time_ns(warmup) > 1.002 * alone.iteration_time_ns(warmup)
    counts = count_outcomes(planned.prefill.records, point.spec.prefill.slo if point.spec.prefill else 0)
    assert counts["rejected_slo"] > 100
    assert counts["late"] == counts["broken_promises"] == 0
