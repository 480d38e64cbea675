"""Commands over a Ray cluster: who is let in, whose machines they are, what runs on them, and how it all ends."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.ray.machine_remains import network_of, remains
from tests.support.ray.ray_cluster import (
    RayCluster,
    RayNode,
    ray_cluster,
    two_nodes,  # noqa: F401 - a fixture
)
from tests.support.until import until_within
from wanbed.runner.rack_runs.cluster import WITHOUT_AUTH
from wanbed.testbed.claims.processes import MARKER, marked_processes

LEFT_S = 30
"""How long something may be left of a run whose driver was killed, or a machine of which has lost its power."""
ROOT = Path(__file__).resolve().parents[4]
EXPERIMENT = {
    "name": "two datacenters",
    # The machines may lack netem: nearly nothing is to be emulated.
    "topology": {
        "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
        "wan": {"latency": "100us"},
    },
    "compute": {"forward": "5ms", "backward": "10ms", "activation": "64KiB"},
    "training": {"microbatches": 4, "iterations": 3, "warmup": 1},
    "variants": [{"name": "gpipe", "schedule": "gpipe"}],
    "engine": "rack",
}

RUN = ("-m", "tests.support.ray.unshaped_run")

OTHER_VERSION = """
import json, sys
from ray._raylet import GcsClient
key, space = b"CLUSTER_METADATA", b"cluster"
client = GcsClient(address=sys.argv[1])
held = json.loads(client.internal_kv_get(key, namespace=space))
before, held[sys.argv[2]] = held[sys.argv[2]], sys.argv[3]
client.internal_kv_put(key, json.dumps(held).encode(), True, namespace=space)
print(before)
"""

MINE = """
from rackbeside import reverse
from wanbed.workloads.schedules.gpipe import GPipe

class Mine(GPipe):
    def order(self, stage):
        return reverse(reverse([*super().order(stage)]))
"""

HOLD = """
import sys
from wanbed.runner.rack_runs.agents import agents_on, holder_text
from wanbed.runner.rack_runs.rack import rack_at
with rack_at(sys.argv[1], print) as rack, agents_on(rack.carrying, "first.yaml", sent=rack.sent) as machines:
    print("held", flush=True)
    if sys.stdin.readline():
        print([machine.call("facts").hostname for machine in machines.values()], flush=True)
"""

CALLS = """
import sys
from wanbed.ground.errors import InputError
from wanbed.runner.rack_runs.agents import agents_on
from wanbed.runner.rack_runs.rack import rack_at
from wanbed.ground.errors import MissingError
from wanbed.testbed.rack.machine_handle import MachineLostError
with rack_at(sys.argv[1], print) as rack:
    print([(node.name, node.datacenter) for node in rack.carrying], len(rack.nodes))
    with agents_on(rack.carrying, "first", machine="tests.support.ray.plain_machine:PlainMachine") as machines:
        east = machines["east"]
        slow = [east.start_call("sleep", 1.0) for _ in range(5)]
        print(east.call("echo", {"a": b"bytes"}))
        try:
            slow[0].result(0.01)
        except TimeoutError:
            print("goes on")
        print([each.result() for each in slow])
        try:
            east.check_computes("tests.support.ray.plain_machine:LackingBackend", {})
        except MissingError as lacking:
            print(lacking)
        for method in ("refuse", "break_down"):
            try:
                east.call(method)
            except Exception as fault:
                print(type(fault).__name__, fault, "plain_machine.py" in str(fault.__cause__))
        try:
            east.call("die")
        except MachineLostError as lost:
            print(lost)
        print(machines["west"].call("echo", 1))
"""


@pytest.fixture
def experiment_file(tmp_path: Path) -> Path:
    path = tmp_path / "two.yaml"
    path.write_text(json.dumps({**EXPERIMENT, "sweep": {"topology.datacenters[east].hosts": [1, 2]}}))
    return path


def wanbed(cluster: RayCluster, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return cluster.run_driver("-m", "wanbed", *arguments)


def with_environment(cluster: RayCluster, **changes: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["env", *(f"{name}={value}" for name, value in changes.items()), *_command("clean", "--rack", cluster.address)],
        env={**os.environ, **cluster.environment},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "wanbed", *arguments]


@contextmanager
def holding(cluster: RayCluster) -> Iterator["subprocess.Popen[str]"]:
    driver = cluster.start_driver("-c", HOLD, cluster.address, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with driver:
        try:
            assert driver.stdout is not None
            assert driver.stdout.readline() == "held\n"
            yield driver
        finally:
            driver.kill()


def test_a_wrong_token_is_refused_in_one_line(two_nodes: RayCluster) -> None:  # noqa: F811
    done = with_environment(two_nodes, RAY_AUTH_TOKEN="0" * 64)
    assert done.returncode == 5
    (line,) = done.stderr.splitlines()
    assert "the cluster refuses this token" in line


@pytest.mark.soak
def test_agents_pass_calls_and_errors_on(two_nodes: RayCluster) -> None:  # noqa: F811
    done = two_nodes.run_driver("-c", CALLS, two_nodes.address)
    assert done.stdout.splitlines() == [
        "[('east', 'east'), ('west', 'west')] 3",
        "{'a': b'bytes'}",
        "goes on",
        "[1.0, 1.0, 1.0, 1.0, 1.0]",
        "machine east: no abacus: buy one",
        "InputError hosts: give fewer True",
        "ZeroDivisionError division by zero True",
        "east has left the rack: its agent has ended",
        "1",
    ], done.stderr


def test_a_run_over_the_cluster_leaves_a_run_like_any_other(
    two_nodes: RayCluster,  # noqa: F811
    tmp_path: Path,
) -> None:
    done = two_nodes.run_driver(*RUN, two_nodes.address, str(tmp_path), json.dumps(EXPERIMENT))
    assert done.returncode == 0, done.stderr
    manifest = json.loads(Path(done.stdout.splitlines()[-1], "manifest.json").read_text())
    assert manifest["complete"]
    assert manifest["substrate"]["name"] == "rack"
    assert manifest["rack_hosts"] == {"0": {"east": ["east-0"], "west": ["west-0"]}}
    assert manifest["cluster"]["token_authentication"] is True
    assert manifest["cluster"]["sources_sent"] is False
    until_within(10, lambda: not _held(two_nodes))


# Without Ray test_rack_pool.py has the same bytes.
@pytest.mark.soak
def test_simulations_spread_over_the_cluster_leave_the_same_bytes(
    two_nodes: RayCluster,  # noqa: F811
    experiment_file: Path,
) -> None:
    trials = []
    for name, options in (("here", ()), ("over", ("--rack", two_nodes.address))):
        done = wanbed(
            two_nodes, "simulate", str(experiment_file), "--runs", str(experiment_file.with_name(name)), *options
        )
        assert done.returncode == 0, done.stderr
        (run,) = experiment_file.with_name(name).iterdir()
        files = (file for file in run.glob("trials/**/*") if file.is_file())
        trials.append({file.relative_to(run): file.read_bytes() for file in files})
    here, over = trials
    assert here
    assert over == here


@pytest.mark.soak
def test_a_second_run_is_told_whose_machine_it_is_or_waits(
    two_nodes: RayCluster,  # noqa: F811
    tmp_path: Path,
) -> None:
    run = (two_nodes.address, str(tmp_path), json.dumps(EXPERIMENT))
    with holding(two_nodes) as first:
        refused = two_nodes.run_driver(*RUN, *run)
        assert refused.returncode == 5
        assert refused.stderr == "wanbed: east carries first.yaml: wait for its end with --queue, or end it\n"
        waiting = two_nodes.start_driver(*RUN, *run, "queue", stdout=subprocess.PIPE)
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == "log: east carries first.yaml: waiting for its end\n"
        first.kill()
        output, _ = waiting.communicate(timeout=120)
        assert waiting.returncode == 0, output


@pytest.mark.soak
def test_doctor_says_what_machines_lack_what_is_between_them_and_what_they_carry(
    two_nodes: RayCluster,  # noqa: F811
    experiment_file: Path,
) -> None:
    done = wanbed(two_nodes, "doctor", str(experiment_file), "--rack", two_nodes.address, "--json")
    document = json.loads(done.stdout)
    east, west = (machine for machine in document["machines"] if machine["carries_hosts"])
    assert (east["node"]["name"], east["in_use_by"]) == ("east", None)
    assert east["survey"]["can"].keys() >= {"root", "netem", "vxlan", "wireguard", "iperf3", "ping"}
    # Ray opens its folders to everybody.
    assert east["survey"]["exposed"] == "/run/ray can be written by everybody"
    assert abs(west["clock_ahead_ms"]) < 1000
    (path,) = document["plain_network"]
    assert (path["one"], path["other"], path["fault"]) == ("east", "west", None)
    assert 0 < path["rtt_ms"] < 1000
    assert min(path["there_bps"], path["back_bps"]) > 1e6
    one, two = document["sweep_points"]
    assert one["machine_of"] == {"east-0": "east", "west-0": "west"}
    assert not two["carried"]
    assert two["reasons"][0].startswith("no room for the hosts of east: 3 hosts in 2 datacenters")
    assert done.returncode == (5 if any(machine["missing"] for machine in document["machines"]) else 0)


@pytest.mark.soak
def test_doctor_names_the_run_on_a_machine_and_leaves_its_network_alone(two_nodes: RayCluster) -> None:  # noqa: F811
    with holding(two_nodes):
        done = wanbed(two_nodes, "doctor", "--rack", two_nodes.address)
    assert done.stdout.count("  in use by   first.yaml\n") == 2
    assert "network " not in done.stdout
    assert "wanbed: not measured between machines that a run uses: east, west\n" in done.stderr


@pytest.mark.soak
def test_clean_removes_what_is_left_on_every_machine(two_nodes: RayCluster) -> None:  # noqa: F811
    _leave_a_claim(two_nodes, "west")
    found = _cleaned(two_nodes)
    assert [each["source"] for each in found["west"]["cleaned"]] == ["left.yaml"]
    assert found["east"]["cleaned"] == []
    assert _cleaned(two_nodes)["west"]["cleaned"] == []


@pytest.mark.soak
def test_a_machine_without_this_wanbed_is_sent_it(two_nodes: RayCluster) -> None:  # noqa: F811
    machine = two_nodes.machines["west"]
    hidden = str(ROOT / "wanbed")
    subprocess.run(machine.inside("mount", "-t", "tmpfs", "tmpfs", hidden), check=True)
    try:
        driver = two_nodes.start_driver("-c", HOLD, two_nodes.address, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        output, _ = driver.communicate("say\n", timeout=120)
    finally:
        subprocess.run(machine.inside("umount", "-l", hidden), check=True)
    assert output == "west has another wanbed or none: sending this one\nheld\n['east', 'west']\n"


@pytest.mark.soak
def test_a_schedule_of_the_users_goes_to_the_machines_with_what_is_beside_it(
    two_nodes: RayCluster,  # noqa: F811
    tmp_path: Path,
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "rackmine.py").write_text(MINE)
    (own / "rackbeside.py").write_text("def reverse(actions):\n    return actions[::-1]\n")
    document = json.dumps({**EXPERIMENT, "variants": [{"name": "mine", "schedule": "rackmine:Mine"}]})
    run = [sys.executable, *RUN, two_nodes.address, str(tmp_path / "runs"), document]

    def called() -> "subprocess.CompletedProcess[str]":
        environment = {**os.environ, **two_nodes.environment, "PYTHONPATH": f"{own}:{ROOT}"}
        return subprocess.run(run, env=environment, check=False, capture_output=True, text=True, timeout=120)

    done = called()
    assert done.returncode == 0, done.stderr
    assert json.loads(Path(done.stdout.splitlines()[-1], "manifest.json").read_text())["complete"]
    # What only this computer has loaded when it packs: the machines miss it, and say so before a run begins.
    (own / "rackmine.py").write_text(f"import os\nassert os.uname().nodename not in ('east', 'west')\n{MINE}")
    refused = called()
    assert refused.returncode == 5, refused.stderr
    (line,) = [line for line in refused.stderr.splitlines() if line.startswith("wanbed: ")]
    assert line.startswith("wanbed: machine east: rackmine:Mine: ")
    assert len([*(tmp_path / "runs").iterdir()]) == 1


@pytest.mark.soak
@pytest.mark.parametrize(
    ("field", "version", "said"),
    [
        ("ray_version", "2.1.0", "the cluster runs Ray 2.1.0 and this process "),
        ("python_version", "3.9.1", "the cluster runs Python 3.9.1 and this process "),
    ],
)
def test_a_cluster_of_another_version_is_refused_in_one_line(
    two_nodes: RayCluster,  # noqa: F811
    field: str,
    version: str,
    said: str,
) -> None:
    changed = two_nodes.run_driver("-c", OTHER_VERSION, two_nodes.address, field, version)
    try:
        done = wanbed(two_nodes, "clean", "--rack", two_nodes.address)
    finally:
        two_nodes.run_driver("-c", OTHER_VERSION, two_nodes.address, field, changed.stdout.strip())
    assert done.returncode == 5
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"wanbed: --rack {two_nodes.address}: {said}")


@pytest.mark.soak
def test_a_cluster_that_lets_in_everybody_is_refused_in_one_line() -> None:
    with ray_cluster(RAY_AUTH_MODE="disabled") as open_to_all:
        done = with_environment(open_to_all, RAY_AUTH_MODE="token")
        assert done.returncode == 5
        assert done.stderr.splitlines() == [
            f"wanbed: --rack {open_to_all.address}: the cluster lets in everybody who reaches it: call `ray start` "
            f"with RAY_AUTH_MODE=token on its machines; {WITHOUT_AUTH}=1 goes without"
        ]


@pytest.mark.soak
def test_a_machine_whose_power_goes_ends_the_run_in_one_line_and_nothing_is_left_on_the_other(tmp_path: Path) -> None:
    longer = {**EXPERIMENT, "training": {"microbatches": 4, "iterations": 1000, "warmup": 1}}
    with ray_cluster(RayNode("east", {"wanbed.datacenter": "east"}), RayNode("west")) as cluster:
        east = cluster.machines["east"]
        plain = network_of(east)
        driver = cluster.start_driver(
            *RUN,
            cluster.address,
            str(tmp_path),
            json.dumps(longer),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with driver:
            assert driver.stdout is not None
            assert any(line.startswith("log: west to east: RTT") for line in driver.stdout)
            time.sleep(2)
            cluster.machines["west"].power_off()
            until_within(LEFT_S, lambda: not remains(east, plain))
            _, errors = driver.communicate(timeout=60)
    assert driver.returncode == 4, errors
    last = [line for line in errors.splitlines() if line.startswith("wanbed: ")]
    assert len(last) == 1
    assert "west has left the rack" in last[0]
    assert "Traceback" not in errors
    (run,) = tmp_path.iterdir()
    assert not json.loads((run / "manifest.json").read_text())["complete"]


@pytest.mark.soak
def test_a_cluster_without_authentication_is_refused_unless_that_is_wanted(two_nodes: RayCluster) -> None:  # noqa: F811
    done = with_environment(two_nodes, RAY_AUTH_MODE="disabled")
    assert done.returncode == 5
    assert WITHOUT_AUTH in done.stderr
    allowed = with_environment(two_nodes, RAY_AUTH_MODE="disabled", **{WITHOUT_AUTH: "1"})
    assert "the cluster refuses this token" in allowed.stderr


# Of a driver that is killed test_rack_testbed.py shows it on machines that no Ray has joined.
@pytest.mark.soak
def test_of_a_driver_that_is_killed_nothing_is_left_on_any_machine(
    two_nodes: RayCluster,  # noqa: F811
    tmp_path: Path,
) -> None:
    longer = {**EXPERIMENT, "training": {"microbatches": 4, "iterations": 1000, "warmup": 1}}
    flow = {"name": "flow", "from": "east", "to": "west", "rate": "1Mbit"}
    run = (*RUN, two_nodes.address, str(tmp_path), json.dumps({**longer, "background": [flow]}))
    with two_nodes.start_driver(*run, stdout=subprocess.PIPE) as driver:
        until_within(120, lambda: len(_testbeds_of("wanbed.workloads.background_flows")) == 2)
        held = _testbeds_of("wanbed.workloads.background_flows")
        until_within(60, lambda: held <= _testbeds_of("wanbed.workloads.rank"))
        driver.kill()
    until_within(LEFT_S, lambda: not any(marked_processes(identifier) for identifier in held))
    assert [each["cleaned"] for each in _cleaned(two_nodes).values()] == [[], []]


def _testbeds_of(module: str) -> set[str]:
    """The identifiers of the testbeds with a process of that module, on whichever machine this computer plays."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if module.encode() in (process / "cmdline").read_bytes():
                variables = (process / "environ").read_bytes().decode().split("\0")
                found |= {text.partition("=")[2] for text in variables if text.startswith(f"{MARKER}=")}
    return found


def _held(cluster: RayCluster) -> list[str]:
    document = json.loads(wanbed(cluster, "doctor", "--rack", cluster.address, "--json").stdout)
    return [machine["in_use_by"] for machine in document["machines"] if machine["in_use_by"]]


def _cleaned(cluster: RayCluster) -> Mapping[str, Any]:
    done = wanbed(cluster, "clean", "--rack", cluster.address, "--json")
    return {machine["name"]: machine for machine in json.loads(done.stdout)["machines"]}


def _leave_a_claim(cluster: RayCluster, machine: str) -> None:
    """Claim a testbed on the machine, by a process that ends without releasing it."""
    code = "from wanbed.testbed.claims.registry import claim; claim('left.yaml')"
    subprocess.run(
        cluster.machines[machine].inside(sys.executable, "-c", code),
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
