"""Replicas that swap a whole model and average over a star, in virtual time: their time, and one lost or back again."""

from pathlib import Path

import pytest

from tests.support.present import present
from tests.support.runner.called_wanbed import run_here, simulate_here
from tests.system.virtual_time.inside_virtual_time import kernel_or_skip
from wanbed.results.reading.run import Run
from wanbed.runner.planner.experiment_file import load_experiment
from wanbed.runner.trainings.local_updates.resolution import LocalUpdatesVariant
from wanbed.workloads.gpt.gpt_config import GptConfig

REPLICAS, FAILING, ITERATIONS = 3, 2, 12
EXPERIMENT = f"""
name: star
clock: virtual
topology:
  datacenters: [{{name: east, hosts: 1}}, {{name: central, hosts: 1}}, {{name: west, hosts: 1}}]
  wan: {{latency: 10ms, rate: 500Mbit}}
model: {{layers: 12, hidden: 256, context: 128, heads: 4, vocabulary: 1000}}
compute: {{forward: 24ms, backward: 48ms, optimizer: 2ms}}
training: {{pipelines: {REPLICAS}, microbatches: 4, iterations: {ITERATIONS}, warmup: 2}}
variants:
  - {{name: atom, schedule: atom, options: {{sync_every: 2, quorum: 2, swap: 500MB/s, memory: 8MB, wire: int8}}}}
sweep:
  fail: [[], [{{rank: {FAILING}, at: 1500ms}}], [{{rank: {FAILING}, at: 1500ms, for: 600ms}}]]
"""


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Run:
    kernel_or_skip()
    return run_here(EXPERIMENT, tmp_path_factory.mktemp("emulated"))


def test_both_passes_take_the_time_of_the_groups(emulated: Run, tmp_path: Path) -> None:
    file = tmp_path / "star.yaml"
    file.write_text(EXPERIMENT)
    variant = load_experiment(file).points()[0].variants[0]
    assert isinstance(variant, LocalUpdatesVariant)
    grouping = present(variant.grouping)
    spans = emulated.spans
    computed = spans[(spans["sweep_point"] == 0) & spans["kind"].isin(("forward", "backward"))]
    for _, own in computed.groupby(["rank", "iteration"]):
        assert own["end_ns"].max() - own["start_ns"].min() == pytest.approx(grouping.iteration_ns, rel=0.002)


def test_the_simulator_agrees(emulated: Run, tmp_path: Path) -> None:
    simulated, measured = (
        each.sort_values("sweep_point") for each in (simulate_here(EXPERIMENT, tmp_path).summary, emulated.summary)
    )
    slowest = (each["slowest_replica_time_s"].tolist() for each in (simulated, measured))
    assert next(slowest) == pytest.approx(next(slowest), rel=0.05)
    # The replica that comes back may end one iteration more in the window, of all three's, or one less.
    one_more = 1 / (REPLICAS * (ITERATIONS - 2) - 1)
    times = (each["iteration_time_s"].tolist() for each in (simulated, measured))
    assert next(times) == pytest.approx(next(times), rel=0.05 + one_more)
    assert simulated["outcome"].tolist() == measured["outcome"].tolist()
    joined_s = [each["time_to_recover_s"].tolist()[2] for each in (simulated, measured)]
    assert joined_s[0] == pytest.approx(joined_s[1], rel=0.05)


def test_the_others_go_on_without_a_replica_that_is_killed(emulated: Run) -> None:
    undisturbed, survived, _ = emulated.summary.sort_values("sweep_point").to_dict("records")
    assert (undisturbed["outcome"], survived["outcome"]) == (None, "survived")
    assert survived["time_to_detect_s"] < 0.5
    last = emulated.spans[emulated.spans["sweep_point"] == 1].groupby("rank")["iteration"].max()
    assert last[FAILING] < ITERATIONS - 1
    assert all(last[rank] == ITERATIONS - 1 for rank in (0, 1))
    assert survived["slowest_replica_time_s"] <= undisturbed["slowest_replica_time_s"] * 1.01
    # Of three replicas one ends nothing any more.
    assert undisturbed["iteration_time_s"] < survived["iteration_time_s"] < 1.5 * undisturbed["iteration_time_s"]


def test_a_replica_that_comes_back_joins_the_others_and_delays_none(emulated: Run) -> None:
    *_, joined = emulated.summary.sort_values("sweep_point").to_dict("records")
    assert joined["outcome"] == "survived"
    # It is started again after 600 ms, waits for an iteration of the others to end, and gets 8 bytes a parameter.
    transfer_s = 8 * 8 * GptConfig(12, 256, 128, 4, 1000).parameters(0, 1) / 500e6
    assert 0.6 + transfer_s < joined["time_to_recover_s"] < 0.6 + 1.1 * transfer_s + 1.5 * joined["iteration_time_s"]
    spans = emulated.spans[(emulated.spans["sweep_point"] == 2) & (emulated.spans["kind"] == "forward")]
    iterations = {rank: sorted(set(own["iteration"])) for rank, own in spans.groupby("rank")}
    assert iterations[0] == iterations[1] == list(range(ITERATIONS))
    missed = sorted(set(range(ITERATIONS)) - set(iterations[FAILING]))
    assert missed == list(range(missed[0], missed[-1] + 1))
    assert iterations[FAILING][-1] == ITERATIONS - 1
    others = emulated.spans[emulated.spans["rank"] != FAILING]
    ends_ns = others[others["kind"] == "optimizer"].groupby(["sweep_point", "rank"])["end_ns"].max()
    for rank in (0, 1):
        assert ends_ns[2, rank] == pytest.approx(ends_ns[0, rank], rel=0.01)
