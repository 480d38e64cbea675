import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.ground.errors import InputError
from wanbed.testbed.gpus.gpu_assignment import GpuAssignment, GpuSeat, assign_gpus
from wanbed.testbed.network.topology import Topology, resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec


def network(*hosts: int, gpus_per_host: int = 1, serving_hosts: int = 0) -> Topology:
    document = {
        "datacenters": [
            {"name": f"dc{place}x", "hosts": count, "gpus_per_host": gpus_per_host, "serving_hosts": serving_hosts}
            for place, count in enumerate(hosts)
        ]
    }
    return resolve_topology(TopologySpec.model_validate(document))


def assigned(topology: Topology, devices: int, sharing: int = 1) -> GpuAssignment:
    return assign_gpus(topology, [f"GPU-{place}" for place in range(devices)], sharing=sharing)


def test_each_host_owns_its_gpus() -> None:
    found = assigned(network(1, 2, gpus_per_host=2), 8)
    assert found.uuids == {"dc0x-0": ("GPU-0", "GPU-1"), "dc1x-0": ("GPU-2", "GPU-3"), "dc1x-1": ("GPU-4", "GPU-5")}
    assert found.most_sharers == 1


def test_hosts_that_serve_own_theirs() -> None:
    assert assigned(network(1, serving_hosts=1), 2).uuids == {"dc0x-0": ("GPU-0",), "dc0x-serving-0": ("GPU-1",)}


def test_a_program_sees_the_gpus_of_its_host_and_a_rank_its_own() -> None:
    found = assigned(network(2, gpus_per_host=2), 4)
    assert found.environment("dc0x-1") == {"CUDA_VISIBLE_DEVICES": "GPU-2,GPU-3"}
    assert found.environment("dc0x-1", 1) == {"CUDA_VISIBLE_DEVICES": "GPU-3"}


def test_two_gpus_of_a_host_on_one_device_are_seen_as_one() -> None:
    found = assigned(network(1, gpus_per_host=2), 1, sharing=2)
    assert found.environment("dc0x-0") == {"CUDA_VISIBLE_DEVICES": "GPU-0"}
    assert found.environment("dc0x-0", 1) == {"CUDA_VISIBLE_DEVICES": "GPU-0"}


def test_shares_are_reported() -> None:
    found = assigned(network(3), 2, sharing=2)
    assert list(found.seats()) == [
        GpuSeat("dc0x-0", 0, "GPU-0", 2),
        GpuSeat("dc0x-1", 0, "GPU-1", 1),
        GpuSeat("dc0x-2", 0, "GPU-0", 2),
    ]
    assert [seat["share"] for seat in found.document()] == [0.5, 1.0, 0.5]


@pytest.mark.parametrize(
    ("devices", "sharing", "refusal"),
    [
        (
            1,
            1,
            r"^compute\.sharing: the hosts have 4 GPUs and this machine 1 GPU: give compute\.sharing: 4, "
            r"so that up to 4 share one, use fewer hosts, or give compute\.device: cpu$",
        ),
        (3, 1, r"this machine 3 GPUs: give compute\.sharing: 2, "),
        (1, 3, r"this machine 1 GPU, each shared by 3 at most: give compute\.sharing: 4, "),
        (0, 9, r"this machine 0 GPUs, each shared by 9 at most: bring GPUs, use fewer hosts, "),
    ],
)
def test_too_many_gpus_are_refused_without_sharing(devices: int, sharing: int, refusal: str) -> None:
    with pytest.raises(InputError, match=refusal):
        assigned(network(4), devices, sharing)


@given(
    hosts=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    gpus_per_host=st.integers(1, 4),
    devices=st.integers(1, 9),
    sharing=st.integers(1, 9),
)
def test_gpus_are_assigned_evenly_within_the_sharing_limit(
    hosts: list[int], gpus_per_host: int, devices: int, sharing: int
) -> None:
    topology, count = network(*hosts, gpus_per_host=gpus_per_host), sum(hosts) * gpus_per_host
    if count > devices * sharing:
        with pytest.raises(InputError):
            assigned(topology, devices, sharing)
        return
    found = assigned(topology, devices, sharing)
    assert [len(uuids) for uuids in found.uuids.values()] == [gpus_per_host] * sum(hosts)
    assert found.most_sharers <= sharing
    assert (found.most_sharers > 1) == (count > devices)
    assert max(seat.sharers for seat in found.seats()) - min(seat.sharers for seat in found.seats()) <= 1
    for uuids in found.uuids.values():
        assert len(set(uuids)) == min(gpus_per_host, devices)
