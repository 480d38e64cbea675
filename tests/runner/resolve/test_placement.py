import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refused import refused
from wanbed.ground.errors import InputError
from wanbed.runner.resolve.placement import Placement, StagePlace, _even_split, place_stages, ring_order
from wanbed.testbed.network.topology import Datacenter, Host, Topology


def network(*gpus_of_hosts: list[int]) -> Topology:
    """Datacenters a, b, c, ..., each given as its hosts' numbers of GPUs."""
    return Topology(
        tuple(
            Datacenter(name, index, tuple(Host(f"{name}-{host}", name, host, gpus) for host, gpus in enumerate(hosts)))
            for index, (name, hosts) in enumerate(zip("abcdefghij", gpus_of_hosts, strict=False))
        ),
        50_000,
        None,
        (),
    )


def counts(placement: Placement, topology: Topology) -> list[int]:
    return [sum(place.datacenter == dc.name for place in placement.places) for dc in topology.datacenters]


NETWORKS = st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), min_size=1, max_size=6).map(
    lambda datacenters: network(*datacenters)
)


@given(st.data(), NETWORKS)
def test_every_stage_has_its_own_gpu_and_replicas_share_a_datacenter(data: st.DataObject, topology: Topology) -> None:
    stages = data.draw(st.integers(1, sum(host.gpus for host in topology.hosts)))
    placement = place_stages(topology, stages)
    assert [place.stage for place in placement.places] == list(range(stages))
    assert len({(place.host.name, place.gpu) for place in placement.places}) == stages
    assert all(0 <= place.gpu < place.host.gpus for place in placement.places)
    order = [host.name for host in topology.hosts]
    positions = [order.index(place.host.name) for place in placement.places]
    assert positions == sorted(positions)


@given(st.data(), NETWORKS)
def test_stages_are_even_wherever_there_are_gpus(data: st.DataObject, topology: Topology) -> None:
    gpus = [sum(host.gpus for host in dc.hosts) for dc in topology.datacenters]
    shares = counts(place_stages(topology, data.draw(st.integers(1, sum(gpus)))), topology)
    most = max(shares)
    assert all(share >= most - 1 or share == there for share, there in zip(shares, gpus, strict=True))
    with_room = [share for share, there in zip(shares, gpus, strict=True) if share < there]
    assert with_room == sorted(with_room, reverse=True)


@pytest.mark.parametrize(
    ("gpus_of_hosts", "stages", "expected"),
    [
        (([1, 1], [1, 1], [1, 1]), 6, [2, 2, 2]),
        (([1, 1], [1, 1], [1, 1]), 5, [2, 2, 1]),
        (([1, 1], [1, 1], [1, 1]), 2, [1, 1, 0]),
        (([1], [1, 1, 1, 1], [1]), 6, [1, 4, 1]),
        (([1, 1, 1], [1], [1, 1, 1]), 6, [3, 1, 2]),
        (([4], [2]), 5, [3, 2]),
    ],
)
def test_a_remainder_goes_to_the_first_datacenters_that_have_gpus(
    gpus_of_hosts: tuple[list[int], ...], stages: int, expected: list[int]
) -> None:
    topology = network(*gpus_of_hosts)
    assert counts(place_stages(topology, stages), topology) == expected


def test_stages_of_a_datacenter_are_spread_over_its_hosts_in_order() -> None:
    placement = place_stages(network([2, 2, 2]), 4)
    assert [(place.host.name, place.gpu) for place in placement.places] == [
        ("a-0", 0),
        ("a-0", 1),
        ("a-1", 0),
        ("a-2", 0),
    ]


def test_boundaries_join_each_stage_to_the_next() -> None:
    placement = place_stages(network([1], [1, 1]), 3)
    assert [(one.host.name, other.host.name) for one, other in placement.boundaries] == [("a-0", "b-0"), ("b-0", "b-1")]
    assert place_stages(network([1]), 1).boundaries == ()


def test_a_variant_can_give_the_datacenter_of_each_stage() -> None:
    placement = place_stages(network([1, 1], [1, 1]), 3, 1, ["b", "a", "b"])
    assert [place.host.name for place in placement.places] == ["b-0", "a-0", "b-1"]


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (["a", "b"], "placement: a list of 2 for 3 stages, name one datacenter for each stage"),
        (["a", "b", "z"], "placement.2: no datacenter 'z', there are a, b"),
        (
            ["a", "b", "b"],
            "placement: 2 stages in b, whose hosts have 1 GPUs: add hosts there or place stages elsewhere",
        ),
    ],
)
def test_invalid_placements_are_refused(asked: list[str], text: str) -> None:
    assert refused(lambda: place_stages(network([1, 1], [1]), 3, 1, asked)) == text


def test_more_stages_than_gpus_are_refused_with_what_there_is() -> None:
    with pytest.raises(
        InputError,
        match=r"^training.stages: 4 stages need 4 GPUs, one each, and the hosts have 3 \(a 2, b 1\): add hosts or",
    ):
        place_stages(network([1, 1], [1]), 4)


def at(pipeline: int, stage: int, gpu: int = 0) -> StagePlace:
    return StagePlace(pipeline, stage, Host("a-0", "a", 0, 1), gpu)


@pytest.mark.parametrize(
    ("pipelines", "words"),
    [
        (((at(0, 0), at(0, 1)),), "a GPU of its own"),
        (((at(0, 0),), (at(1, 0),)), "a GPU of its own"),
        (((at(0, 0, gpu=1),),), "a GPU of its own"),
        (((at(0, 1),),), "in order"),
    ],
)
def test_two_stages_on_one_gpu_are_no_placement(pipelines: tuple[tuple[StagePlace, ...], ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Placement(pipelines)


def hosts(placement: Placement) -> list[list[str]]:
    return [[place.host.name for place in pipeline] for pipeline in placement.pipelines]


def test_the_replicas_of_a_stage_share_a_datacenter_each_on_a_host_of_its_own() -> None:
    placement = place_stages(network([1] * 4, [1] * 4, [1] * 4), 6, 2)
    assert hosts(placement) == [
        ["a-0", "a-1", "b-0", "b-1", "c-0", "c-1"],
        ["a-2", "a-3", "b-2", "b-3", "c-2", "c-3"],
    ]
    assert [placement.rank(place) for place in placement.places] == list(range(12))
    assert [placement.crosses_wan(boundary) for boundary in range(5)] == [False, True, False, True, False]
    assert [place.host.name for place in placement.replicas(3)] == ["b-1", "b-3"]


@given(st.data(), NETWORKS, st.integers(1, 4))
def test_no_all_reduce_crosses_the_wan_unless_asked_to(data: st.DataObject, topology: Topology, pipelines: int) -> None:
    room = sum(sum(host.gpus for host in dc.hosts) // pipelines for dc in topology.datacenters)
    stages = data.draw(st.integers(1, max(room, 1)))
    if not room:
        with pytest.raises(InputError, match="add hosts"):
            place_stages(topology, stages, pipelines)
        return
    placement = place_stages(topology, stages, pipelines)
    for stage in range(stages):
        assert len({place.datacenter for place in placement.replicas(stage)}) == 1


def test_whole_replicas_are_spread_over_the_datacenters_and_their_ring_enters_each_once() -> None:
    placement = place_stages(network([1, 1], [1, 1], [1, 1]), 1, 5, whole_replicas=True)
    assert hosts(placement) == [["a-0"], ["a-1"], ["b-0"], ["b-1"], ["c-0"]]
    scattered = place_stages(network([1, 1], [1, 1]), 1, 4, [["a"], ["b"], ["a"], ["b"]])
    assert [place.host.name for place in ring_order(scattered.replicas(0))] == ["a-0", "a-1", "b-0", "b-1"]


def test_a_variant_can_place_each_pipeline_for_itself() -> None:
    placement = place_stages(network([1, 1], [1, 1]), 2, 2, [["a", "b"], ["b", "a"]])
    assert hosts(placement) == [["a-0", "b-0"], ["b-1", "a-1"]]


@pytest.mark.parametrize(
    ("stages", "pipelines", "asked", "text"),
    [
        (2, 3, None, "training.stages: 3 pipelines of 2 stages need 6 GPUs, one each, and the hosts have 5 (a 3, b 2)"),
        (
            1,
            4,
            None,
            "training.stages: 4 pipelines of 1 stage, replicas of a stage in one datacenter, do not fit the GPUs of",
        ),
        (2, 2, [["a", "b"]], "placement: 1 lists for 2 pipelines, give one for each, or a single one"),
        (2, 2, [["a", "b"], ["a"]], "placement.1: a list of 1 for 2 stages, name one datacenter for each stage"),
        (2, 2, [["a", "b"], ["a", "x"]], "placement.1.1: no datacenter 'x', there are a, b"),
    ],
)
def test_pipelines_that_cannot_be_placed_are_refused(
    stages: int, pipelines: int, asked: list[list[str]] | None, text: str
) -> None:
    assert refused(lambda: place_stages(network([1, 1, 1], [2]), stages, pipelines, asked)).startswith(text)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.data())
def test_even_split_equals_handing_out_one_by_one(room: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(0, sum(room)))
    shares = [0] * len(room)
    for _ in range(count):
        free = [index for index, share in enumerate(shares) if share < room[index]]
        shares[min(free, key=lambda index: shares[index])] += 1
    assert _even_split(count, room) == shares


def test_ten_thousand_gpus_are_placed_one_stage_on_each() -> None:
    topology = network(*[[1] * 2048] * 5)
    placement = place_stages(topology, 20, 512)
    assert counts(placement, topology) == [2048] * 5
    assert {len({place.datacenter for place in placement.replicas(stage)}) for stage in range(20)} == {1}
