"""An ordinary user without any capability: networks in a user namespace, with and without TAP devices."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.runner.wanbed_command import BUSY_OR_NOT
from tests.support.testbed.processes import command_line
from tests.support.until import until_within
from tests.support.workloads.reference_training import train_reference
from tests.system.hosts.ordinary_user import DEVICES, ROOT, UNPRIVILEGED, USER, as_ordinary_user
from wanbed import results
from wanbed.testbed.claims.processes import SUPERVISED, marked_processes
from wanbed.testbed.claims.registry import state_root
from wanbed.testbed.substrate.guest_device import TAP_DEVICE, guest_device
from wanbed.testbed.substrate.probe import probe_guest
from wanbed.workloads.gpt.gpt_config import GptConfig

WANBED = (sys.executable, "-m", "wanbed")
PATIENCE_S = 150

# 100 Mbit/s at 10 ms one way, 1 Gbit/s at 20 ms the other.
LINK = """
name: link
topology:
  datacenters: [{name: east, hosts: 1}, {name: west, hosts: 1}]
  links:
    - {from: east, to: west, latency: 10ms, rate: 100Mbit}
    - {from: west, to: east, latency: 20ms, rate: 1Gbit}
compute: {forward: 10ms, backward: 20ms, activation: 512KiB}
variants: [{name: gpipe, schedule: gpipe}]
dilation: 1
"""
CONFIG = GptConfig(layers=2, hidden=64, context=32, heads=4, vocabulary=256)
LEARNING_RATE = 3e-4
TRAINING = {"stages": 2, "microbatches": 2, "iterations": 3, "precision": "fp32", "learning_rate": LEARNING_RATE}
TRAINED = {
    "name": "trained",
    "topology": {
        "datacenters": [{"name": name, "hosts": 1} for name in ("east", "west")],
        "wan": {"latency": "20ms", "rate": "20Mbit"},
    },
    "model": {"layers": 2, "hidden": 64, "context": 32, "heads": 4, "vocabulary": 256},
    "compute": {"kind": "torch", "device": "cpu", "checkpointing": False},
    "training": TRAINING,
    "variants": [{"name": "1f1b", "schedule": "1f1b"}],
    "dilation": 1,
    "seed": 7,
}


@pytest.fixture
def home() -> Iterator[Path]:
    """A fresh folder of the user, reachable for everybody."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        path = Path(made)
        (path / "link.yaml").write_text(LINK)
        (path / "trained.yaml").write_text(yaml.safe_dump(TRAINED))
        for each in (path, *path.iterdir()):
            os.chown(each, USER, USER)
        yield path


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    """What the user's machine has to connect the guest by."""
    if not (offer := probe_guest()).available:
        pytest.skip(f"no guest substrate: {offer.reason}")
    if request.param == "tap" and (refusal := guest_device().tap_refusal) is not None:
        pytest.skip(f"not even root opens {TAP_DEVICE}: {refusal}")
    return str(request.param)


def wanbed(*arguments: str, device: str, home: Path, status: int = 0) -> "subprocess.CompletedProcess[str]":
    argv = as_ordinary_user([*WANBED, *arguments], device=device, home=home)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == status, done.stderr
    return done


def test_doctor_names_the_tier_and_what_one_more_right_would_bring(device: str, home: Path) -> None:
    document = json.loads(wanbed("doctor", "--json", device=device, home=home).stdout)
    assert document["tier"]["name"].startswith("user namespace, with ")
    assert document["tier"]["rights"][0]["right"] == "root, or sudo"
    (guest,) = [offer for offer in document["netem"]["offers"] if offer["name"] == "guest"]
    assert guest["available"]
    assert guest["reason"].endswith("over TAP devices") is (device == "tap")


@pytest.mark.measures
@pytest.mark.soak
@pytest.mark.parametrize("device", ["tap", "raw veth"], indirect=True)
def test_links_have_their_round_trip_time_and_their_goodput(device: str, home: Path) -> None:
    argv = as_ordinary_user([*WANBED, "calibrate", "link.yaml", "--json"], device=device, home=home)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    # Only root keeps processors awake: a transfer after a pause may be milliseconds late, which is status 1.
    assert done.returncode in BUSY_OR_NOT, done.stderr
    for link in json.loads(done.stdout)["links"]:
        asked, measured = link["configured"], link["measured"]
        print(device, link["from"], asked, measured)
        assert asked["rtt_ms"] - 0.2 <= measured["rtt_ms"] <= asked["rtt_ms"] + 1
        assert measured["goodput_bps"] == pytest.approx(asked["goodput_bps"], rel=0.03)
    assert done.stderr.startswith("wanbed: not root: the network is made in a user namespace of your own")


def test_training_over_two_datacenters_is_that_of_one_process(home: Path) -> None:
    """Where there is no TAP device, and the run says by what its network was made."""
    argv = as_ordinary_user([*WANBED, "run", "trained.yaml", "--json"], device="raw veth", home=home)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    # A link outside tolerance, which is status 1, changes no loss; what is measured here is not the network.
    assert done.returncode in BUSY_OR_NOT, done.stderr
    assert done.stderr.count("user namespace") == 1
    run = results.load(home / json.loads(done.stdout)["run"])
    reference = train_reference(CONFIG, pipelines=1, microbatches=2, iterations=3, seed=7, learning_rate=LEARNING_RATE)
    (trial,) = run.trials
    assert trial.facts["losses"] == pytest.approx(reference.losses, rel=1e-5)
    assert run.manifest["rights"] == {"user_namespace": True}
    guest = run.manifest["substrate"]["guest"]
    assert guest["device"] == "raw veth"
    assert guest["buffer_bytes"] > 400_000
    assert {path.stat().st_uid for path in (home / "runs").rglob("*")} == {USER}


@pytest.mark.parametrize("device", ["tap", pytest.param("raw veth", marks=pytest.mark.soak)], indirect=True)
def test_programs_join_from_outside_and_nothing_is_left_after_a_kill(device: str, home: Path) -> None:
    argv = as_ordinary_user([*WANBED, "shell", "link.yaml"], device=device, home=home)
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as shell:
        assert shell.stderr is not None
        try:
            while "up on the guest substrate" not in (line := shell.stderr.readline()):
                assert line, "the shell ended before its network was up"
            script = "hostname; ping -c 2 -i 0.2 west-0; touch made; env -i setsid sleep 300 > /dev/null 2>&1 &"
            done = wanbed("exec", "link.yaml", "east-0", "--", "sh", "-c", script, device=device, home=home)
            (record,) = _records_of(shell.pid)
            ours = namespaces_of([shell.pid, *marked_processes(record["identifier"])])
            (supervisor,) = marked_processes(record["identifier"], SUPERVISED)
            os.kill(supervisor, signal.SIGSTOP)
        finally:
            shell.kill()
    # The host's shell ends by itself before the supervisor looks, and the program that it leaves has no mark.
    until(lambda: not [pid for pid in every_process() if "bash" in command_line(pid) and namespaces_of([pid]) & ours])
    os.kill(supervisor, signal.SIGCONT)
    assert done.stdout.startswith("east-0\n")
    assert "2 received" in done.stdout
    assert f"wanbed: on testbed {record['identifier']}, which is up already" in done.stderr
    assert (home / "made").stat().st_uid == USER
    assert len(ours) > 4
    until(lambda: not namespaces_of(every_process()) & ours)
    until(lambda: not marked_processes(record["identifier"]))
    until(lambda: not _records_of(shell.pid))
    assert record["identifier"] not in wanbed("clean", device=device, home=home).stdout


@pytest.mark.parametrize(
    "command", ["run", *(pytest.param(each, marks=pytest.mark.soak) for each in ("calibrate", "shell"))]
)
def test_root_without_capabilities_is_told_what_it_lacks_before_anything_begins(command: str, tmp_path: Path) -> None:
    (tmp_path / "link.yaml").write_text(LINK)
    argv = ["setpriv", *UNPRIVILEGED, *WANBED, command, "link.yaml"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        argv, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 5
    (line,) = done.stderr.splitlines()
    assert line.startswith("wanbed: no netem anywhere: no namespaces for hosts: ")
    assert "give the container the capabilities SYS_ADMIN and NET_ADMIN, or run as a user other than root" in line


until = partial(until_within, PATIENCE_S)


def every_process() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def namespaces_of(pids: Iterable[int]) -> set[str]:
    """The network, mount and user namespaces of processes, without those of this one."""
    return set().union(*map(_namespaces, pids)) - _namespaces(os.getpid())


def _namespaces(pid: int) -> set[str]:
    # A process that is just ending is in none.
    with suppress(OSError):
        return {os.readlink(f"/proc/{pid}/ns/{kind}") for kind in ("net", "mnt", "user")}
    return set()


def _records_of(owner: int) -> list[dict[str, Any]]:
    """The records of testbeds that a process of the user owns."""
    found = []
    for path in state_root(USER).glob("*/record.json"):
        try:
            found.append(json.loads(path.read_text()))
        except FileNotFoundError:
            continue
    return [record for record in found if record["owner_pid"] == owner]
