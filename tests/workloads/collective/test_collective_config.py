"""Ways around the emulated network are shut by variables, which a user's own must not open again."""

from dataclasses import replace

import pytest

from wanbed.workloads.collective.collective_config import (
    CollectiveConfig,
    check_devices,
    collective_environment,
    nccl_ways,
    opened_way,
    ucx_environment,
)


def test_what_shuts_a_way_may_be_given_and_whatever_opens_it_not() -> None:
    shut = {**nccl_ways("east-0", apart=True), **ucx_environment("eth0", apart=True)}
    del shut["NCCL_HOSTID"]
    assert not any(opened_way(name, value) for name, value in shut.items())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_IB_DISABLE", "0"),
        ("NCCL_NET", "IB"),
        ("NCCL_P2P_DISABLE", "0"),
        ("NCCL_SHM_DISABLE", "0"),
        ("NCCL_MNNVL_ENABLE", "1"),
        ("NCCL_HOSTID", "one"),
        ("UCX_TLS", "rc,sm"),
    ],
)
def test_a_value_that_opens_a_way_is_told_with_the_remedy(name: str, value: str) -> None:
    assert "leave it out" in (opened_way(name, value) or "")


def test_other_variables_are_the_users_own() -> None:
    assert opened_way("NCCL_DEBUG", "INFO") is None
    assert opened_way("GLOO_SOCKET_IFNAME", "lo") is None


def test_ranks_of_one_host_may_use_what_gpus_of_one_host_have() -> None:
    alone = nccl_ways("east-0", apart=False)
    assert (alone["NCCL_P2P_DISABLE"], alone["NCCL_SHM_DISABLE"], alone["NCCL_IB_DISABLE"]) == ("0", "0", "1")
    assert ucx_environment("eth0", apart=False) == {"UCX_NET_DEVICES": "eth0"}


PLAN = CollectiveConfig(
    backend="nccl",
    hosts=("east-0", "east-1", "east-2"),
    position=1,
    interface="eth0",
    store_address="10.0.0.2",
    store_port=20_012,
    timeout_ns=60_000_000_000,
)


def test_every_host_is_a_machine_of_its_own_to_nccl_and_only_its_interface_leads_out() -> None:
    assert collective_environment(PLAN) == {
        "NCCL_HOSTID": "east-1",
        "NCCL_P2P_DISABLE": "1",
        "NCCL_SHM_DISABLE": "1",
        "NCCL_IB_DISABLE": "1",
        "NCCL_NET": "Socket",
        "NCCL_MNNVL_ENABLE": "0",
        "NCCL_SOCKET_IFNAME": "=eth0",
        "NCCL_SOCKET_FAMILY": "AF_INET",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
        "TORCH_NCCL_ENABLE_MONITORING": "0",
    }


def test_hosts_of_a_group_have_different_ids() -> None:
    ids = [collective_environment(replace(PLAN, position=position))["NCCL_HOSTID"] for position in range(3)]
    assert ids == ["east-0", "east-1", "east-2"]


def test_gpus_of_one_host_reach_each_other_as_those_of_a_real_host_do() -> None:
    environment = collective_environment(replace(PLAN, hosts=("east-0", "east-0")))
    assert (environment["NCCL_P2P_DISABLE"], environment["NCCL_SHM_DISABLE"]) == ("0", "0")


def test_a_host_with_two_of_the_replicas_is_still_apart_from_the_third() -> None:
    environment = collective_environment(replace(PLAN, hosts=("east-0", "east-0", "east-1")))
    assert (environment["NCCL_P2P_DISABLE"], environment["NCCL_SHM_DISABLE"]) == ("1", "1")


def test_gloo_uses_the_configured_interface() -> None:
    assert collective_environment(replace(PLAN, backend="gloo")) == {"GLOO_SOCKET_IFNAME": "eth0"}


def test_replicas_on_gpus_of_their_own_may_sum() -> None:
    check_devices(["GPU-1", "GPU-2", "GPU-3"], PLAN.hosts)


def test_replicas_that_share_a_gpu_are_refused_by_their_hosts() -> None:
    with pytest.raises(ValueError, match=r"the replicas on east-0 and east-2 share one \(GPU-1\): bring more GPUs"):
        check_devices(["GPU-1", "GPU-2", "GPU-1"], PLAN.hosts)


def test_replicas_on_different_hosts_may_share_a_gpu_where_that_is_asked_for() -> None:
    check_devices(["GPU-1", "GPU-2", "GPU-1"], PLAN.hosts, shares_gpus=True)
    with pytest.raises(ValueError, match=r"the replicas on east-0 and east-0 share one \(GPU-1\)"):
        check_devices(["GPU-1", "GPU-1", "GPU-1"], ("east-0", "east-1", "east-0"), shares_gpus=True)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"backend": "mpi"}, "backend: 'mpi' is none of nccl, gloo"),
        ({"hosts": ("east-0",), "position": 0}, "hosts: 1 replica has nothing to sum with"),
        ({"position": 3}, "position: 3 is none of the 3 replicas"),
        ({"store_port": 0}, "store_port: 0 is no port"),
        ({"timeout_ns": 0}, "timeout_ns: 0 is below 1"),
        ({"all_reduce_timeout_ns": 0}, "all_reduce_timeout_ns: 0 is below 1"),
    ],
)
def test_an_invalid_config_is_refused_by_field(changes: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        replace(PLAN, **changes)  # type: ignore[arg-type]
