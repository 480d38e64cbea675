import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.results.runs import EXPERIMENT, flat, made
from wanbed import results
from wanbed.results.comparison.run_description import facts, warnings, what_was_run
from wanbed.results.reading.run import Run
from wanbed.results.reading.validity import MODELLED_TCP, SATURATION_REMEDY
from wanbed.results.records.run_store import RunStore

BuildRun = Callable[..., Path]


def test_the_description_says_what_ran_where_and_over_what_sweep(build_run: BuildRun) -> None:
    assert what_was_run(results.load(build_run())) == (
        "Compared: one connection and many connections. 3 datacenters: east (2 hosts), central (2 hosts) and west "
        "(2 hosts). Each trial: 6 stages, 1 pipeline, 8 microbatches and 3 iterations, of which 1 to warm up. "
        "Swept: WAN latency 10ms, 40ms."
    )


def test_a_complete_calibrated_run_needs_no_warning(build_run: BuildRun) -> None:
    assert warnings(results.load(build_run())) == []


def test_an_incomplete_run_says_how_far_it_came(build_run: BuildRun) -> None:
    run = results.load(build_run(finished_trials=3))
    assert warnings(run) == [
        "This run is incomplete: 3 of 4 trials had finished when its folder was read. Only those are shown."
    ]


def test_a_complete_run_that_has_lost_a_trial_says_so(build_run: BuildRun) -> None:
    path = build_run()
    shutil.rmtree(results.load(path).trials[0].folder)
    assert warnings(results.load(path)) == [
        "This run was complete, and lacks 1 trial of 4: something removed from its folder what had finished. "
        "Only the others are shown."
    ]


def test_a_run_without_calibration_says_so(build_run: BuildRun) -> None:
    path = build_run(latencies=("10ms",))
    shutil.rmtree(path / "calibration")
    (warning,) = warnings(results.load(path))
    assert warning.startswith("The links were not calibrated: ")


def test_a_run_outside_tolerance_says_in_which_sweep_points(build_run: BuildRun) -> None:
    (warning,) = warnings(results.load(build_run(within_tolerance=False)))
    assert warning.startswith("Calibration found links outside tolerance at WAN latency 10ms and WAN latency 40ms: ")


def test_the_facts_say_whether_the_network_was_in_a_user_namespace(build_run: BuildRun) -> None:
    run = results.load(build_run(manifest={"rights": {"user_namespace": True}}))
    assert dict(facts(run))["rights"] == "user_namespace yes"


def test_the_facts_name_what_decides_the_figures(build_run: BuildRun) -> None:
    found = dict(facts(results.load(build_run(manifest={"dilation": 4.0, "git": {"revision": "abc", "dirty": True}}))))
    assert found["substrate"] == "kernel (the host kernel has sch_netem)"
    assert found["substrate details"] == "kernel 6.1.0-18-amd64"
    assert found["congestion control"] == "cubic"
    assert found["TCP settings"] == "tcp_rmem 4096 131072 6291456"
    assert found["variant many connections"] == "schedule gpipe, transport connections 8"
    assert found["dilation"].startswith("4.0 (the run was 4.0 times slower")
    assert found["git revision"] == "abc, with uncommitted changes"
    assert "python 3.11.2" in found["versions"]


@pytest.mark.parametrize("manifest", [{}, {"sysctls": {"east-0": {"a": 1}}}, {"experiment": None, "training": None}])
def test_an_incomplete_manifest_is_described_without_the_absent_parts(
    tmp_path: Path, manifest: dict[str, object]
) -> None:
    run = results.load(RunStore.create(tmp_path, "bare", manifest, "c0ffee").path)
    assert what_was_run(run) == ""
    assert dict(facts(run))["configuration hash"] == "c0ffee"
    assert len(warnings(run)) == 1


def test_a_saturated_machine_is_reported_with_the_worst_variant(build_run: BuildRun) -> None:
    run = results.load(build_run())
    assert not any("overloaded" in warning for warning in warnings(run))
    loads = iter([0.02, 0.4, 0.05])
    trials = [
        replace(trial, facts={**trial.facts, "machine_load": {"busy": 0.9, "saturated": next(loads, 0.0)}})
        for trial in run.trials
    ]
    (text,) = [warning for warning in warnings(replace(run, trials=trials)) if "overloaded" in warning]
    assert text.startswith(f"In 1 of {len(trials)} trials the machine was overloaded, worst with {trials[1].variant}: ")
    assert "saturated for 40%" in text
    assert text.endswith(f"limited the speed: {SATURATION_REMEDY}.")


def test_a_busy_network_core_is_reported_even_if_other_cores_are_idle(build_run: BuildRun) -> None:
    run = results.load(build_run())
    loads = iter([0.3, None, 0.85])
    trials = [
        replace(trial, facts={**trial.facts, "machine_load": {"saturated": 0.0, "network": next(loads, 0.1)}})
        for trial in run.trials
    ]
    (text,) = [warning for warning in warnings(replace(run, trials=trials)) if "overloaded" in warning]
    assert text.startswith(f"In 1 of {len(trials)} trials the machine was overloaded, worst with {trials[2].variant}: ")
    assert "the one core of the gateway guest or relay was busy for 85% of the trial" in text


def test_modelled_tcp_is_a_warning(build_run: BuildRun) -> None:
    run = results.load(build_run(manifest={"substrate": {"name": "relay", "tcp": "modelled"}}))
    assert MODELLED_TCP in warnings(run)
    assert MODELLED_TCP not in warnings(results.load(build_run()))


def test_divided_trunks_are_a_warning(build_run: BuildRun) -> None:
    def told(split: dict[str, dict[str, int]]) -> list[str]:
        run = results.load(build_run(manifest={"trunk_split": split}))
        return [text for text in warnings(run) if text.startswith("Trunks")]

    (text,) = told({"0": {"east to west": 2}, "1": {"east to west": 2, "west to east": 3}})
    assert "among the machines that send into them: east to west (by 2) and west to east (by 3)." in text
    assert told({"0": {}}) == []


def test_a_simulation_is_reported_as_such_and_needs_no_calibration(build_run: BuildRun) -> None:
    path = build_run(manifest={"engine": "simulate", "repeats": 1})
    shutil.rmtree(path / "calibration")
    run = results.load(path)
    assert run.summary["calibrated"].all()
    assert warnings(run) == []
    assert what_was_run(run).startswith("Simulated as discrete events: nothing was sent and nothing measured. Compared")


def test_what_a_simulation_does_not_model_is_a_warning(build_run: BuildRun) -> None:
    run = results.load(build_run(manifest={"engine": "simulate"}))
    jitter = {"field": "topology.wan.jitter", "asked": "5ms", "links": [["east", "west"]]}
    points = [{**point, "not_modelled": [jitter]} for point in run.manifest["sweep_points"]]
    (text,) = warnings(replace(run, manifest={**run.manifest, "sweep_points": points}))
    assert text.startswith("The simulator does not model jitter 5ms (east-west), ")


def test_a_run_at_its_own_pace_is_not_said_to_be_slower(build_run: BuildRun) -> None:
    assert dict(facts(results.load(build_run(manifest={"dilation": 1.0}))))["dilation"] == "1.0"


def test_times_that_stand_for_torch_s_are_reported(build_run: BuildRun) -> None:
    run = results.load(build_run(manifest={"engine": "simulate"}))
    trials = [replace(trial, facts={**trial.facts, "torch_times_of_profile": "cpu"}) for trial in run.trials]
    (text,) = warnings(replace(run, trials=tuple(trials)))
    assert text.startswith("Torch did not run: its times come from the compute profile cpu, ")


def test_of_a_path_with_many_values_the_first_and_the_last_are_named(build_run: BuildRun) -> None:
    points = [{"index": i, "sweep_point": {"topology.wan.latency": f"{i}ms"}} for i in range(40)]
    text = what_was_run(results.load(build_run(finished_trials=0, manifest={"sweep_points": points})))
    assert text.endswith(
        "Swept: WAN latency 0ms, 1ms, 2ms, 3ms, 4ms, 5ms, 6ms, 7ms, 8ms, 9ms, ... to 39ms (40 values)."
    )


def test_one_trial_that_was_overloaded_is_the_only_one(build_run: BuildRun) -> None:
    run = results.load(build_run(variants=("one",), latencies=("10ms",)))
    (trial,) = run.trials
    loaded = replace(trial, facts={**trial.facts, "machine_load": {"saturated": 0.5}})
    (text,) = [warning for warning in warnings(replace(run, trials=[loaded])) if "overloaded" in warning]
    assert text.startswith("In its only trial the machine was overloaded")


def test_facts_leave_out_what_is_unknown_and_say_no_program_twice(build_run: BuildRun) -> None:
    host = {"cpu": "one", "frequency_governor": None}
    run = results.load(
        build_run(manifest={"host": host, "programs": {"ping": "ping from iputils 2022", "iperf3": "3.12"}})
    )
    text = dict(facts(run))
    assert text["host"] == "cpu one"
    assert text["measuring programs"] == "ping from iputils 2022, iperf3 3.12"


def test_transfers_that_are_small_beside_a_burst_are_reported_once(build_run: BuildRun) -> None:
    path = build_run()
    said = "one connection: an activation of 64 KiB is small beside the 10 KiB that east to west let go"
    RunStore.open(path).update_manifest({"small_transfers": {"0": [said], "1": [said]}})
    assert warnings(results.load(path)) == [f"{said}."]


def of_points(run: Run, count: int, **manifest: object) -> Run:
    """Return the run with so many sweep points of the latency, which has a trial at each of them."""
    points = [{"index": i, "sweep_point": {"topology.wan.latency": f"{i}ms"}} for i in range(count)]
    own = {**run.manifest, "sweep_points": points, **manifest}
    trials = tuple(
        replace(run.trials[0], id=run.trials[0].id._replace(point=index), manifest=own) for index in range(count)
    )
    return replace(run, manifest=own, trials=trials)


@pytest.mark.parametrize(("count", "text"), [(12, "0ms, 1ms, "), (13, "9ms, ... to 12ms (13 values).")])
def test_twelve_values_of_a_swept_path_are_listed_and_of_more_the_first_ten_and_the_last(
    build_run: BuildRun, count: int, text: str
) -> None:
    said = what_was_run(of_points(results.load(build_run(finished_trials=1)), count))
    assert text in said
    assert said.endswith("10ms, 11ms." if count == 12 else text)


def test_twelve_sweep_points_without_calibration_are_named_and_the_others_counted(build_run: BuildRun) -> None:
    run = results.load(build_run(finished_trials=1))
    uncalibrated = replace(run, calibration=run.calibration[:0])
    for count, end in ((12, "WAN latency 10ms and WAN latency 11ms: "), (14, "WAN latency 11ms and 2 more: ")):
        (text,) = [each for each in warnings(of_points(uncalibrated, count)) if each.startswith("The links were not")]
        assert end in text


def test_the_description_counts_what_the_training_is_made_of(build_run: BuildRun) -> None:
    run = results.load(build_run(finished_trials=1))

    def described(**manifest: object) -> str:
        return what_was_run(replace(run, manifest={**run.manifest, "sweep_points": [], **manifest}))

    training = {"stages": 1, "pipelines": 2, "microbatches": 1, "iterations": 9}
    assert "Each trial: 1 stage, 2 pipelines, 1 microbatch and 9 iterations." in described(
        training=training, warmup_iterations=0
    )
    variants = [{"name": "a", "training": {"stages": 2}}, {"name": "b", "training": {"stages": None}}]
    one = {**run.manifest["experiment"], "variants": variants}
    assert "a divides the training differently." in described(experiment=one)
    both = {**one, "variants": [variants[0], {**variants[0], "name": "b"}]}
    assert "a and b divide the training differently." in described(experiment=both)


def test_interfaces_tell_each_mtu_once_and_memory_is_a_size(build_run: BuildRun) -> None:
    offloads = {"0": {"mtu_bytes": {"e0": 9000, "e1": 1500, "e2": 1500, "e3": None}}}
    host = {"cpu": "one", "memory_bytes": 8 * 2**30}
    found = dict(facts(results.load(build_run(finished_trials=1, manifest={"offloads": offloads, "host": host}))))
    assert found["MTU"] == "1500 bytes, 9000 bytes"
    assert found["host"].startswith("cpu one, memory 8.59\u00a0GB")
    assert found["dilation"] == "1.0"


def test_the_description_names_the_variants_whose_optimizer_steps_wait_for_all_stages(tmp_path: Path) -> None:
    variants = [
        {"name": "own", "training": {"optimizer_waits": "own"}},
        {"name": "all", "training": {}},
    ]
    of_both = {**EXPERIMENT, "training": {"optimizer_waits": "all stages"}, "variants": variants}
    run = made(tmp_path, {("10ms", "own"): flat(1.0), ("10ms", "all"): flat(1.0)}, experiment=of_both)
    assert "Optimizer steps of all wait for the gradients of all stages, and for their norm." in what_was_run(run)
    assert "Optimizer steps" not in what_was_run(made(tmp_path / "own", {("10ms", "own"): flat(1.0)}))


def test_the_description_names_the_variants_that_add_up_the_gradients_of_several_flushes(tmp_path: Path) -> None:
    found = {"all": {"accumulate": 4}, "each": {"accumulate": 4, "summed": "every flush"}, "one": {}}
    times = {("10ms", name): flat(1.0) for name in found}
    points = [{"index": 0, "sweep_point": {"topology.wan.latency": "10ms"}, "variants": found}]
    run = made(tmp_path, times, sweep_points=points)
    said = what_was_run(run)
    assert "Before an optimizer step of all gradients of 4 flushes add up, summed over the replicas once." in said
    assert "of each gradients of 4 flushes add up, summed over the replicas after each of them." in said
    assert "of one" not in said
