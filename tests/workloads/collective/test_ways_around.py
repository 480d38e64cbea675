"""Ways around the emulated network are shut by variables, which a user's own must not open again."""

import pytest

from wanbed.workloads.collective.ways_around import nccl_ways, opened_way, ucx_environment


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
