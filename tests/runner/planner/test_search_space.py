from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.runner.planner_instances import document, random_task, task_of
from wanbed.ground.strict_model import parse_model
from wanbed.runner.experiment.compute_spec import SlowerSpec
from wanbed.runner.planner.planning import search_space
from wanbed.runner.planner.search import every_candidate
from wanbed.runner.planner.search_space import Candidate, Price, Priced, alike_before, free_gpus, most_pipelines
from wanbed.testbed.network.topology import Topology, resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec


def priced(tokens_per_s: float, runs: tuple[tuple[str, int], ...], cells: int = 1) -> Priced:
    return Priced(Candidate(cells, 1, runs), Price(1.0, tokens_per_s, 0.5, 0), tokens_per_s)


def test_a_candidate_names_the_datacenter_of_each_stage() -> None:
    candidate = Candidate(3, 2, (("west", 2), ("east", 1)))
    assert candidate.placement == ("west", "west", "east")
    assert (candidate.pipelines, candidate.stages, candidate.datacenters) == (6, 3, ("west", "east"))


@pytest.mark.parametrize(
    ("cells", "size", "runs"),
    [
        (0, 1, (("a", 1),)),
        (1, 0, (("a", 1),)),
        (1, 1, (("a", 0),)),
        (1, 1, (("a", 1), ("b", 1), ("a", 1))),
    ],
)
def test_what_is_no_candidate_is_refused(cells: int, size: int, runs: tuple[tuple[str, int], ...]) -> None:
    with pytest.raises(ValueError, match=r"below 1|occurs twice"):
        Candidate(cells, size, runs)


def test_ties_go_to_fewer_datacenters_then_to_fewer_gpus() -> None:
    fast = priced(2.0, (("a", 1), ("b", 1)))
    together = priced(1.0, (("a", 2),))
    apart = priced(1.0, (("a", 1), ("b", 1)))
    many = priced(1.0, (("a", 2),), cells=2)
    assert sorted([apart, many, together, fast], key=lambda entry: entry.rank) == [fast, together, many, apart]


def network(hosts: dict[str, int], links: Sequence[Mapping[str, object]] = ()) -> Topology:
    spec = {
        "datacenters": [{"name": name, "hosts": count} for name, count in hosts.items()],
        "wan": {"latency": "10ms"},
        "links": list(links),
    }
    return resolve_topology(parse_model(TopologySpec, spec, "test"))


@given(st.integers(0, 10_000))
def test_every_candidate_has_the_gpus_that_it_needs_and_all_stages(seed: int) -> None:
    task = random_task(seed)
    space = search_space(task)
    for candidate in every_candidate(space):
        assert candidate.stages == task.stages
        for name, stages in candidate.runs:
            assert stages * candidate.dp_cells * candidate.pipelines_per_cell <= space.free_gpus[name]


@given(st.integers(0, 10_000))
def test_every_candidate_comes_once(seed: int) -> None:
    candidates = list(every_candidate(search_space(random_task(seed))))
    assert len(candidates) == len(set(candidates)) > 0


@given(st.lists(st.integers(1, 30), min_size=2, max_size=5), st.integers(1, 12))
def test_one_pipeline_more_than_the_most_does_not_fit(gpus: list[int], stages: int) -> None:
    most = most_pipelines(network(dict(zip("abcde", gpus, strict=False))), stages)
    assert sum(count // (most + 1) for count in gpus) < stages
    assert most == 0 or sum(count // most for count in gpus) >= stages


def test_replicas_of_a_stage_share_a_datacenter_so_that_gpus_can_be_left_over() -> None:
    # 9 GPUs are three pipelines of 3 stages; three times a third of 2 and 7 are only 2.
    assert most_pipelines(network({"a": 2, "b": 7}), 3) == 2
    assert free_gpus(network({"a": 2, "b": 7})) == {"a": 2, "b": 7}


def test_dp_cells_have_the_configured_size() -> None:
    asked = {"name": "atlas", "schedule": "atlas", "transport": {"sharing": "temporal", "pipelines_per_cell": 2}}
    space = search_space(task_of(document({"a": 8, "b": 8}, 3, variants=[asked])))
    assert space.pipelines == (2, 4)
    assert {candidate.pipelines_per_cell for candidate in every_candidate(space)} == {2}


def test_without_sharing_a_cell_is_one_pipeline() -> None:
    space = search_space(task_of(document({"a": 3, "b": 3}, 2, variants=[{"name": "v", "schedule": "varuna"}])))
    assert {(c.dp_cells, c.pipelines_per_cell) for c in every_candidate(space)} == {(1, 1), (2, 1), (3, 1)}


def test_auto_makes_dp_cells_as_large_as_those_of_a_file_with_so_many_pipelines() -> None:
    # A transfer lasts 8.8 ms, 3 forwards: of 4 pipelines across the WAN no divisor is 3, so they are a DP-cell of 4.
    space = search_space(
        task_of(document({"a": 8, "b": 4}, 2, compute={"forward": "3ms", "activation": "1MiB", "gradient": "1MiB"}))
    )
    sizes = {(c.pipelines, len(c.runs), c.pipelines_per_cell) for c in every_candidate(space) if c is not None}
    assert sizes == {(1, 1, 1), (2, 1, 1), (3, 1, 1), (4, 1, 1)} | {(1, 2, 1), (2, 2, 2), (3, 2, 3), (4, 2, 4)}


def test_datacenters_with_equal_hosts_and_equal_links_are_alike() -> None:
    assert alike_before(network({"a": 2, "b": 3, "c": 2, "d": 2})) == {"a": (), "b": (), "c": ("a",), "d": ("a", "c")}
    further = [{"between": ["a", "b"], "latency": "20ms"}]
    assert alike_before(network({"a": 2, "b": 3, "c": 2, "d": 2}, further))["c"] == ()
    assert alike_before(network({"a": 2, "b": 3, "c": 2, "d": 2}, further))["d"] == ("c",)
    between = [{"between": ["a", "c"], "latency": "20ms"}]
    assert alike_before(network({"a": 2, "b": 3, "c": 2}, between))["c"] == ("a",)


def test_datacenters_are_alike_only_if_both_directions_of_their_links_are() -> None:
    hosts = {"a": 2, "b": 3, "c": 2}
    for ends in (("a", "b"), ("b", "a"), ("c", "b"), ("b", "c"), ("a", "c")):
        assert alike_before(network(hosts, [{"from": ends[0], "to": ends[1], "latency": "20ms"}]))["c"] == ()
    both_ways = [{"from": name, "to": "b", "latency": "20ms"} for name in "ac"]
    assert alike_before(network(hosts, both_ways))["c"] == ("a",)


def test_gpus_that_are_not_equally_fast_are_not_alike() -> None:
    topology = network({"a": 2, "b": 2})

    def alike(*entries: dict[str, object]) -> bool:
        slower = [SlowerSpec.model_validate({"factor": 2, **entry}) for entry in entries]
        return alike_before(topology, slower)["b"] == ("a",)

    assert alike({"stage": 1})
    assert not alike({"datacenter": "a"})
    assert alike({"datacenter": "a"}, {"datacenter": "b"})
    assert not alike({"datacenter": "a"}, {"datacenter": "b", "factor": 3})
    assert not alike({"host": "a-0"})
    assert alike({"host": "a-1"}, {"host": "b-1"})
    assert not alike({"host": "a-0"}, {"host": "b-1"})
    assert not alike({"datacenter": "a", "stage": 0}, {"datacenter": "b", "stage": 1})
