import sys
from pathlib import Path
from typing import Any

import pytest

from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.trainings.program.on_hosts.placeholder_values import ProgramPlaces
from wanbed.runner.trainings.program.on_hosts.torchrun_command import torchrun_command
from wanbed.testbed.hosts.host_home import HostHome, home_here
from wanbed.testbed.network.address_book import AddressBook

ELSEWHERE = HostHome(
    ("/opt/python", "module_process.py"),
    "/bin:/opt",
    lambda path: path.replace("/mine", "/sent/0").replace("/experiments", "/sent/1"),
)
"""What programs find on another machine."""


def places(home: HostHome | None = None, **program: Any) -> ProgramPlaces:
    document = {
        "topology": {
            "datacenters": [{"name": "east", "hosts": 1, "gpus_per_host": 2}, {"name": "west", "hosts": 1}],
            "wan": {"latency": "40ms", "rate": "1Gbit"},
        },
        "variants": [{"name": "mine", "program": {"command": ["python", "train.py"], **program}}],
    }
    (point,) = parse_experiment(document, "exp.yaml", Path("/experiments")).points()
    (variant,) = point.variants
    assert variant.program is not None
    homes = {host.name: home or home_here() for host in point.topology.hosts}
    return ProgramPlaces(variant.program, variant.placement, AddressBook(point.topology, 3), 20_000, homes)


def test_every_process_is_told_its_rank_and_where_all_meet() -> None:
    of = places()
    east, west = of.hosts
    environment = of.environment(east, of.places_on(east)[1])
    assert {name: environment[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")} == {
        "RANK": "1",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "3",
        "LOCAL_WORLD_SIZE": "2",
    }
    assert environment["MASTER_ADDR"] == of.addresses.address(east)
    assert environment["MASTER_PORT"] == "20000"
    assert of.environment(west, of.places_on(west)[0])["RANK"] == "2"


def test_libraries_are_kept_on_the_emulated_network() -> None:
    environment = places().environment(places().hosts[0])
    assert environment["GLOO_SOCKET_IFNAME"] == "eth0"
    assert environment["NCCL_HOSTID"] == "east-0"
    assert environment["UCX_NET_DEVICES"] == "eth0"
    assert environment["NCCL_P2P_DISABLE"] == environment["NCCL_SHM_DISABLE"] == environment["NCCL_IB_DISABLE"] == "1"


def test_programs_beside_wanbed_s_python_are_found_after_those_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/mine:/usr/bin")
    path = places().environment(places().hosts[0])["PATH"]
    assert path == f"/mine:/usr/bin:{Path(sys.executable).parent}"


def test_placeholders_are_filled_in_words_and_variables() -> None:
    of = places(command=["{python}", "{folder}/train.py", "{rank}/{world_size}"], env={"AT": "{host}:{rank}"})
    (west,) = of.places_on(of.hosts[1])
    assert of.words(of.program.spec.command, west.host, west) == (sys.executable, "/experiments/train.py", "2/3")
    assert of.environment(west.host, west)["AT"] == "west-0:2"


def test_on_another_machine_words_name_what_is_there() -> None:
    of = places(ELSEWHERE, command=["{python}", "/mine/train.py", "{folder}/data"], env={"AT": "{folder}"})
    west = of.hosts[1]
    assert of.words(of.program.spec.command, west) == ("/opt/python", "/sent/0/train.py", "/sent/1/data")
    environment = of.environment(west)
    assert (environment["AT"], environment["PATH"]) == ("/sent/1", "/bin:/opt")


def test_a_variable_that_needs_a_rank_is_left_out_where_there_is_none() -> None:
    of = places(env={"AT": "{rank}", "HERE": "{datacenter}"})
    environment = of.environment(of.hosts[0])
    assert "AT" not in environment
    assert environment["HERE"] == "east"


def test_the_user_s_variables_replace_wanbed_s_own() -> None:
    of = places(env={"GLOO_SOCKET_IFNAME": "lo"})
    assert of.environment(of.hosts[0])["GLOO_SOCKET_IFNAME"] == "lo"


@pytest.mark.parametrize(
    ("command", "launcher"),
    [
        (["python", "train.py"], ["python", "-m", "torch.distributed.run"]),
        (["/opt/venv/bin/python3.12", "train.py"], ["/opt/venv/bin/python3.12", "-m", "torch.distributed.run"]),
        (["{python}", "train.py"], [sys.executable, "-m", "torch.distributed.run"]),
        (["./train.sh"], ["torchrun"]),
    ],
)
def test_torchrun_belongs_to_the_python_of_the_command(command: list[str], launcher: list[str]) -> None:
    of = places(command=command, launcher="torchrun")
    words = torchrun_command(of, of.hosts[1], "token", ["each", "one"], Path("/logs"))
    assert list(words[: len(launcher)]) == launcher
    assert words[len(launcher) :] == (
        "--nnodes=2",
        "--nproc-per-node=1",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=east-0:20000",
        "--rdzv-id=token",
        "--max-restarts=0",
        "--log-dir=/logs",
        "--no-python",
        "each",
        "one",
    )


def test_with_a_static_rendezvous_ranks_follow_the_order_of_hosts() -> None:
    of = places(launcher="torchrun", rendezvous="static")
    words = torchrun_command(of, of.hosts[1], "token", ["each"], Path("/logs"))
    assert "--node-rank=1" in words
    assert f"--master-addr={of.rendezvous_address}" in words
    assert "--rdzv-backend=static" in words
