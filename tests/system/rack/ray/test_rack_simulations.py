"""Simulations that are spread over the machines of a rack: the same bytes, also when a machine leaves."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.ray.ray_cluster import (
    RayCluster,
    RayNode,
    ray_cluster,
    two_nodes,  # noqa: F401 - a fixture
)
from wanbed.module_process import module_command

# The witness of a rack over Ray is test_rack_on_ray.py.
pytestmark = pytest.mark.soak

ROOT = Path(__file__).resolve().parents[4]

FILE = """
topology:
  datacenters: [{name: east, hosts: 2}, {name: west, hosts: 2}]
  wan: {latency: 20ms, rate: 100Mbit}
compute: {forward: 20ms, backward: 40ms, activation: 1MiB}
training: {stages: 4, microbatches: 8}
variants:
  - {name: gpipe, schedule: gpipe}
  - {name: atlas, schedule: atlas}
sweep: {topology.wan.latency: [1ms, 2ms, 5ms, 10ms, 20ms, 40ms]}
"""


MINE = """
import os
from rackbeside import reverse
from wanbed.workloads.schedules.gpipe import GPipe

# The machines of the tests share this computer's files: what they import is what they were sent.
assert os.uname().nodename not in {"east", "west"} or __file__.startswith("/proc/self/fd/"), __file__

class Mine(GPipe):
    def order(self, stage):
        return reverse(reverse([*super().order(stage)]))
"""


@pytest.fixture(name="file")
def experiment_file(tmp_path: Path) -> Path:
    file = tmp_path / "sweep.yaml"
    file.write_text(FILE, encoding="utf-8")
    return file


def wanbed(cluster: RayCluster, *words: object) -> "subprocess.CompletedProcess[str]":
    return cluster.run_driver("-m", "wanbed.runner.cli.command_line", *map(str, words))


def trials(runs: Path) -> dict[str, bytes]:
    (run,) = runs.iterdir()
    files = sorted(file for file in (run / "trials").rglob("*") if file.is_file())
    return {str(file.relative_to(run)): file.read_bytes() for file in files}


def test_a_rack_leaves_the_files_that_one_process_would(two_nodes: RayCluster, file: Path) -> None:  # noqa: F811
    here, over = file.parent / "here", file.parent / "over"
    alone = wanbed(two_nodes, "simulate", file, "--runs", here, "--jobs", 1)
    assert alone.returncode == 0, alone.stderr
    spread = wanbed(two_nodes, "simulate", file, "--runs", over, "--rack", two_nodes.address)
    assert spread.returncode == 0, spread.stderr
    assert "12 of 12 trials done" in spread.stderr
    assert trials(over) == trials(here)


def test_a_schedule_that_fails_is_told_in_the_same_line_as_without_a_rack(
    two_nodes: RayCluster,  # noqa: F811
    file: Path,
) -> None:
    short = "training.iterations=100000000"
    refused = [
        wanbed(two_nodes, "simulate", file, "--set", short, "--runs", file.parent / "runs", *options)
        for options in (("--jobs", 1), ("--rack", two_nodes.address))
    ]
    assert refused[0].returncode == refused[1].returncode != 0
    assert refused[1].stderr.splitlines()[-1] == refused[0].stderr.splitlines()[-1]


@pytest.fixture(name="own")
def own_schedule(file: Path) -> Path:
    """Have the experiment's variant follow a schedule of the user's, in the folder that is returned."""
    (file.parent / "rackmine.py").write_text(MINE)
    (file.parent / "rackbeside.py").write_text("def reverse(actions):\n    return actions[::-1]\n")
    variants = json.dumps([{"name": "mine", "schedule": "rackmine:Mine"}])
    file.write_text(f"{FILE.partition('variants:')[0]}variants: {variants}\n")
    return file.parent


def with_own(cluster: RayCluster, own: Path, *words: object) -> "subprocess.CompletedProcess[str]":
    """Call wanbed where the user's modules are found."""
    environment = {**os.environ, **cluster.environment, "PYTHONPATH": f"{own}:{ROOT}"}
    command = module_command("wanbed.runner.cli.command_line", *map(str, words))
    return subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=120)


def test_machines_that_simulate_are_sent_a_schedule_of_the_users(
    two_nodes: RayCluster,  # noqa: F811
    own: Path,
    file: Path,
) -> None:
    words = ("simulate", file, "--set", "sweep={topology.wan.latency: [1ms, 20ms]}", "--runs")
    for name, options in (("here", ()), ("over", ("--rack", two_nodes.address))):
        done = with_own(two_nodes, own, *words, own / name, *options)
        assert done.returncode == 0, done.stderr
    assert trials(own / "over") == trials(own / "here")


def test_machines_that_price_a_plan_are_sent_a_schedule_of_the_users(
    two_nodes: RayCluster,  # noqa: F811
    own: Path,
    file: Path,
) -> None:
    words = ("plan", file, "--set", "training.stages=2", "--set", "compute.gradient=8MiB", "--json")
    alone, spread = [with_own(two_nodes, own, *words, *options) for options in ((), ("--rack", two_nodes.address))]
    assert spread.returncode == alone.returncode == 0, spread.stderr
    assert json.loads(spread.stdout) == json.loads(alone.stdout)


def test_a_schedule_that_the_machines_cannot_import_is_told_in_one_line(
    two_nodes: RayCluster,  # noqa: F811
    own: Path,
    file: Path,
) -> None:
    (own / "rackmine.py").write_text(MINE.replace(' or __file__.startswith("/proc/self/fd/")', ""))
    refused = with_own(two_nodes, own, "simulate", file, "--runs", own / "runs", "--rack", two_nodes.address)
    assert refused.returncode == 5, refused.stderr
    line = refused.stderr.splitlines()[-1]
    assert line.startswith(f"wanbed: --rack {two_nodes.address}: ")
    assert ": rackmine:Mine: " in line
    assert ": install what is missing there; " in line


@pytest.mark.parametrize("search", ["better", "exhaustive"])
def test_a_rack_leads_to_the_plan_that_one_process_would(
    two_nodes: RayCluster,  # noqa: F811
    file: Path,
    search: str,
) -> None:
    hosts = ("--set", "training.stages=2", "--set", "topology.datacenters.0.hosts=6")
    words = ("plan", file, *hosts, "--set", "compute.gradient=8MiB", "--json")
    alone = wanbed(two_nodes, *words, "--search", search)
    spread = wanbed(two_nodes, *words, "--search", search, "--rack", two_nodes.address)
    assert spread.returncode == alone.returncode == 0, spread.stderr
    assert json.loads(spread.stdout) == json.loads(alone.stdout)


def test_python_spreads_simulations_and_plans_over_a_rack_too(two_nodes: RayCluster, file: Path) -> None:  # noqa: F811
    script = f"""
import wanbed
planned = wanbed.Experiment.from_file({str(file)!r}, {{"compute.gradient": "8MiB", "sweep": {{}}}})
plans = [wanbed.plan(planned, search="greedy", rack=rack)[0] for rack in (None, {two_nodes.address!r})]
assert plans[0] == plans[1]
assert wanbed.simulate({str(file)!r}, runs={str(file.parent / "runs")!r}, rack={two_nodes.address!r}).complete
"""
    done = two_nodes.run_driver("-c", script)
    assert done.returncode == 0, done.stderr


def test_jobs_and_a_rack_exclude_each_other(two_nodes: RayCluster, file: Path) -> None:  # noqa: F811
    done = wanbed(two_nodes, "simulate", file, "--jobs", 2, "--rack", two_nodes.address)
    assert done.returncode == 2
    assert done.stderr.startswith("wanbed: --jobs: with --rack")


def test_a_machine_that_leaves_costs_time_and_nothing_else(file: Path) -> None:
    here, over = file.parent / "here", file.parent / "over"
    many = ("--set", "training.iterations=200")
    with ray_cluster(RayNode("east"), RayNode("west")) as cluster:
        words = ["simulate", str(file), *many, "--runs", str(over), "--rack", cluster.address, "--json"]
        piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with cluster.start_driver("-m", "wanbed.runner.cli.command_line", *words, **piped) as driver:
            while driver.poll() is None and not list(over.rglob("trial.json")):
                time.sleep(0.01)
            simulated = len(list(over.rglob("trial.json")))
            cluster.machines["west"].power_off()
            output, errors = driver.communicate(timeout=400)
        assert driver.returncode == 0, errors
        assert 0 < simulated < 9
        assert len(json.loads(output)["summary"]) == 12
        assert wanbed(cluster, "simulate", file, *many, "--runs", here, "--jobs", 1).returncode == 0
    assert trials(over) == trials(here)
