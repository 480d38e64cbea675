"""The Ray cluster that tests of a rack use: real machines' worth of Ray nodes, and nothing left of them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ray.ray_cluster import (
    RayCluster,
    two_nodes,  # noqa: F401 - a fixture
)
from tests.support.until import until_within

# The witness of a rack over Ray is test_rack_on_ray.py.
pytestmark = pytest.mark.soak

WHERE = """
import os, socket, sys, ray
ray.init(sys.argv[1], log_to_driver=False)

@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
def machine():
    with open("/proc/sys/kernel/random/boot_id") as boot:
        return socket.gethostname(), boot.read(), os.listdir("/sys/class/net")

found = ray.get([machine.remote() for _ in range(2)])
names, boots, cards = zip(*found)
print(sorted(names), len(set(boots)), *{tuple(sorted(each)) for each in cards})
"""

KILLED = """
import time
from tests.support.ray.ray_cluster import RayNode, ray_cluster
with ray_cluster(RayNode("alone")) as cluster:
    print(cluster.address, flush=True)
    time.sleep(600)
"""


def test_its_nodes_are_machines_with_cards_of_their_own(two_nodes: RayCluster) -> None:  # noqa: F811
    done = two_nodes.run_driver("-c", WHERE, two_nodes.address)
    assert done.stdout == "['east', 'west'] 2 ('eth0', 'lo')\n", done.stderr


def test_it_lets_nobody_in_without_its_token(two_nodes: RayCluster) -> None:  # noqa: F811
    refused = "import sys, ray; ray.init(sys.argv[1])"
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "of another cluster"}
    done = subprocess.run(
        [sys.executable, "-c", refused, two_nodes.address],
        env={**os.environ, **token},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "authentication" in done.stderr.lower()


def test_nothing_is_left_of_it_when_the_test_process_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True, env=_ours()) as tests:
        assert tests.stdout is not None
        address = tests.stdout.readline().strip()
        assert _processes_of(address)
        tests.send_signal(signal.SIGKILL)
    host = address.split(":", maxsplit=1)[0]
    until_within(20, lambda: not _processes_of(address) and host not in _links())


def _ours() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[4])}


def _processes_of(address: str) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if address in line:
            found.append(line)
    return found


def _links() -> str:
    return subprocess.run(["ip", "-4", "-br", "address"], check=True, capture_output=True, text=True).stdout
