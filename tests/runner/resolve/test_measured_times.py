"""Compute times of a run: which of its trials and GPUs they are, and what is made of them."""

import re
import statistics
from pathlib import Path
from typing import Any

import pytest

import wanbed
from tests.support.present import present
from tests.support.refused import refused
from wanbed.ground.errors import InputError
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.experiment import Experiment
from wanbed.runner.resolve.measured_times import MeasuredSource, MeasuredTimes, measured_times, median_ns
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.workloads.compute.replay import ReplayDurations

MS = 1_000_000
WARMUP = 1
AT_5_MS = {"topology.wan.latency": ["5ms"]}


def document(compute: dict[str, Any] | None = None, **sections: Any) -> dict[str, Any]:
    return {
        "topology": {
            "datacenters": [{"name": "east", "hosts": 4}, {"name": "west", "hosts": 4}],
            "wan": {"latency": "5ms", "rate": "1Gbit"},
        },
        "compute": {"activation": "1KiB", "gradient": "1KiB", **(compute or {})},
        "training": {"stages": 2, "pipelines": 2, "microbatches": 3, "iterations": 3, "warmup": WARMUP},
        "variants": [{"name": "gpipe", "schedule": "gpipe"}, {"name": "split", "schedule": "zb-h1"}],
        **sections,
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> wanbed.Run:
    """A run in which every GPU takes times of its own, at two sweep points."""
    compute = {
        "forward": ["10ms", "20ms"],
        "optimizer": "3ms",
        "slower": [{"pipeline": 1, "factor": 2}],
        "jitter": {"distribution": "uniform", "spread": "10%"},
    }
    swept = document(compute, sweep={"topology.wan.latency": ["5ms", "10ms"]}, repeats=2)
    return wanbed.simulate(wanbed.Experiment(**swept), runs=tmp_path_factory.mktemp("runs"), jobs=1)  # type: ignore[arg-type]


def experiment(run: wanbed.Run, compute: dict[str, Any] | None = None, **sections: Any) -> Experiment:
    written = document({"from": str(run.path), **(compute or {})}, engine="simulate", **sections)
    return parse_experiment(written, "exp.yaml", Path())


def variant(
    run: wanbed.Run, name: str = "gpipe", compute: dict[str, Any] | None = None, **sections: Any
) -> ResolvedVariant:
    return experiment(run, compute, **{"sweep": AT_5_MS, **sections}).points()[0].variant(name)


def measured_ns(
    run: wanbed.Run, kind: str, stage: int, pipelines: list[int], *, variant: str = "gpipe", point: int = 0
) -> list[int]:
    spans = run.spans
    own = spans[
        (spans["kind"] == kind)
        & (spans["stage"] == stage)
        & spans["pipeline"].isin(pipelines)
        & (spans["variant"] == variant)
        & (spans["sweep_point"] == point)
        & (spans["iteration"] >= WARMUP)
    ]
    return sorted((own["end_ns"] - own["start_ns"]).tolist())


def durations(resolved: ResolvedVariant, pipeline: int, stage: int) -> ReplayDurations:
    return resolved.costs(pipeline, stage).durations


def test_each_gpu_takes_the_medians_of_its_own_times_of_all_repeats_after_warm_up(run: wanbed.Run) -> None:
    resolved = variant(run)
    for pipeline in range(2):
        for stage in range(2):
            own = durations(resolved, pipeline, stage)
            for kind, taken_ns in (
                ("forward", own.forward_ns),
                ("backward", own.backward_ns),
                ("optimizer", own.optimizer_ns),
            ):
                assert taken_ns == round(statistics.median(measured_ns(run, kind, stage, [pipeline])))
    assert durations(resolved, 1, 0).forward_ns > 1.5 * durations(resolved, 0, 0).forward_ns


def test_a_variant_takes_the_times_of_the_runs_variant_of_its_name(run: wanbed.Run) -> None:
    taken_ns = durations(variant(run, "split"), 0, 1).backward_weight_ns
    assert taken_ns == round(statistics.median(measured_ns(run, "backward_weight", 1, [0], variant="split")))


def test_a_sweep_point_takes_the_times_of_the_runs_point_of_its_values(run: wanbed.Run) -> None:
    points = experiment(run, sweep={"topology.wan.latency": ["10ms", "5ms"]}).points()
    for own, measured in zip(points, (1, 0), strict=True):
        expected = statistics.median(measured_ns(run, "forward", 0, [0], point=measured))
        assert durations(own.variants[0], 0, 0).forward_ns == round(expected)


def test_with_other_pipelines_a_gpu_takes_the_times_of_all_replicas_of_its_stage(run: wanbed.Run) -> None:
    resolved = variant(run, training={"stages": 2, "pipelines": 4, "microbatches": 3})
    expected = round(statistics.median(measured_ns(run, "forward", 1, [0, 1])))
    assert {durations(resolved, pipeline, 1).forward_ns for pipeline in range(4)} == {expected}


def test_slower_gpus_are_slower_than_measured(run: wanbed.Run) -> None:
    slow, usual = variant(run, compute={"slower": [{"stage": 1, "factor": 3}]}), variant(run)
    assert durations(slow, 0, 0) == durations(usual, 0, 0)
    assert durations(slow, 0, 1).backward_ns == 3 * durations(usual, 0, 1).backward_ns


def test_resampling_draws_what_was_measured_at_that_gpu(run: wanbed.Run) -> None:
    resolved = variant(run, compute={"resample": True})
    assert resolved.varies
    variation = present(resolved.costs(1, 0).variation)
    assert variation.measured_ns["forward"] == measured_ns(run, "forward", 0, [1])


def test_the_document_finds_the_run_from_any_folder(run: wanbed.Run) -> None:
    written = document({"from": run.path.name}, engine="simulate", sweep=AT_5_MS)
    own = parse_experiment(written, "exp.yaml", run.path.parent)
    assert own.document()["compute"]["from"] == str(run.path.resolve())
    assert parse_experiment(own.document(), "exp.yaml", Path("elsewhere")).config_hash == own.config_hash


def test_the_manifest_has_the_run_and_the_hash_of_its_spans(run: wanbed.Run) -> None:
    source = experiment(run, sweep=AT_5_MS).points()[0].variants[0].document()["replicas"]["from"]
    assert (source["run"], source["engine"], source["variant"]) == (str(run.path), "simulate", "gpipe")
    assert (source["sweep_point"], source["repeats"], source["resampled"]) == (0, (0, 1), False)
    assert re.fullmatch("[0-9a-f]{64}", source["spans_sha256"])


@pytest.mark.parametrize(
    ("sections", "text"),
    [
        (
            {"training": {"stages": 4, "microbatches": 3}},
            "measured 2 stages, and here are 4: give training.stages: 2, or",
        ),
        (
            {"variants": [{"name": "mine", "schedule": "gpipe"}]},
            "has no variant 'mine', it has 'gpipe' and 'split': name",
        ),
        (
            {"variants": [{"name": "gpipe", "schedule": "zb-h1"}]},
            "has no backward_input and backward_weight of stage 0",
        ),
        ({"sweep": {"topology.wan.latency": ["7ms"]}}, "has several sweep points and none of topology.wan.latency=7ms"),
    ],
    ids=["stages", "variant", "kinds", "sweep"],
)
def test_a_run_that_does_not_fit_is_refused(run: wanbed.Run, sections: dict[str, Any], text: str) -> None:
    line = refused(lambda: experiment(run, **{"sweep": AT_5_MS, **sections}))
    assert "compute.from: " in line
    assert text in line


def test_a_kind_of_work_that_the_file_has_and_the_run_has_not_is_refused(run: wanbed.Run) -> None:
    with pytest.raises(
        InputError, match=r"compute\.from: .* has no recompute of stage 0 after warm-up in its variant 'gp"
    ):
        experiment(run, {"recompute": "1ms"}, sweep=AT_5_MS)


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"exp\.yaml: compute\.from: .*manifest\.json"):
        parse_experiment(document({"from": str(tmp_path)}), "exp.yaml", Path())


@pytest.mark.parametrize(
    ("compute", "text"),
    [
        ({"resample": True}, "resample: it draws from the times of a run: give from, or leave resample out"),
        ({"from": "x", "resample": True, "jitter": {"spread": "5%"}}, "jitter: resample draws times that vary already"),
    ],
)
def test_resampling_is_of_a_run_and_no_jitter(compute: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=re.escape(text)):
        parse_experiment(document(compute), "exp.yaml", Path())


def test_a_median_is_a_whole_nanosecond_and_one_at_least() -> None:
    assert [median_ns(each) for each in ([0], [0, 1], [1, 2], [3], [2, 5, 100])] == [1, 1, 2, 3, 5]


def test_replicas_are_taken_together_where_the_pipelines_are_others() -> None:
    source = MeasuredSource("r", "simulate", "v", 0, (0,), "")
    own: dict[tuple[int, int], dict[str, tuple[int, ...]]] = {
        (0, 0): {"forward": (1, 5), "optimizer": (9,)},
        (1, 0): {"forward": (3,)},
    }
    times = MeasuredTimes(source, 2, 1, own)
    assert times.of(1, 0, 2) == {"forward": (3,)}
    assert times.of(1, 0, 3) == times.of_stage(0) == {"forward": (1, 3, 5), "optimizer": (9,)}


def test_a_runs_only_variant_and_only_sweep_point_stand_for_those_of_any_name(
    tmp_path: Path,
) -> None:
    written = document({"forward": "10ms"}, variants=[{"name": "gpipe", "schedule": "gpipe"}])
    own = wanbed.simulate(wanbed.Experiment(**written), runs=tmp_path, jobs=1)  # type: ignore[arg-type]
    for values in ({}, {"training.microbatches": "7"}):
        found = measured_times(own.path, "other", values)
        assert (found.source.variant, found.source.sweep_point, found.source.repeats) == ("gpipe", 0, (0,))
        assert (found.pipelines, found.stages) == (2, 2)
        assert set(found.durations_ns[1, 1]["forward"]) == {10 * MS}
        assert len(found.durations_ns[1, 1]["forward"]) == 2 * 3, "two iterations after the warm-up, of three"
