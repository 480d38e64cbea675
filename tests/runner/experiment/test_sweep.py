from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.ground.strict_model import InputError
from wanbed.runner.experiment.sweep import MAX_SWEEP_POINTS, combinations, swept_paths, value_text

PATHS = ("training.microbatches", "topology.wan.latency", "compute.forward", "variants.0.schedule", "model")


@given(st.dictionaries(st.sampled_from(PATHS), st.lists(st.integers(), min_size=1, max_size=4, unique=True)))
def test_a_sweep_has_every_combination_once(sweep: dict[str, list[int]]) -> None:
    points = [tuple(point[path] for path in sweep) for point in combinations(sweep)]
    assert len(points) == len(set(points))
    assert set(points) == set(product(*sweep.values()))


@given(st.data(), st.dictionaries(st.sampled_from(PATHS), st.lists(st.integers(), min_size=1, max_size=3, unique=True)))
def test_sweep_point_index_ignores_the_order_of_paths(data: st.DataObject, sweep: dict[str, list[int]]) -> None:
    shuffled = {path: sweep[path] for path in data.draw(st.permutations(list(sweep)))}
    assert combinations(shuffled) == combinations(sweep)


def test_without_a_sweep_there_is_one_sweep_point() -> None:
    assert combinations({}) == ({},)


def test_values_stay_in_the_order_written() -> None:
    points = combinations({"topology.wan.latency": ["40ms", "5ms"], "compute.forward": ["1ms", "2ms"]})
    assert [tuple(point.values()) for point in points] == [
        ("1ms", "40ms"),
        ("1ms", "5ms"),
        ("2ms", "40ms"),
        ("2ms", "5ms"),
    ]


@pytest.mark.parametrize(
    ("value", "text"), [("10ms", "10ms"), (4, "4"), (True, "true"), (["1ms", "2ms"], '["1ms", "2ms"]'), (None, "null")]
)
def test_values_are_shown_as_they_are_written(value: object, text: str) -> None:
    assert value_text(value) == text


@pytest.mark.parametrize(
    ("sweep", "text"),
    [
        (
            {"topology.wan.latancy": ["1ms"]},
            "topology.wan.latancy: no field 'latancy' in topology.wan, did you mean 'la",
        ),
        ({"seed": [1, 2]}, "seed: a run has one for all its sweep points"),
        ({"engine": ["emulate"]}, "engine: a run has one for all its sweep points"),
        ({"dilation": [1, 2]}, "dilation: a run has one for all its sweep points"),
        ({"sweep": [{}]}, "sweep: a run has one for all its sweep points"),
        ({"variants": [[], []]}, "variants: a run has one for all its sweep points"),
        ({"variants.0": [{}, {}]}, "variants.0: a run has one for all its sweep points"),
        ({"variants.0.name": ["a", "b"]}, "variants.0.name: a run has one for all its sweep points"),
        ({"training.stages": [2, 3, 2]}, "training.stages: the value '2' is there twice"),
        ({"name.x": [1]}, "name.x: name is a single value"),
        ({"training": [{}], "training.stages": [1]}, "training.stages: is swept by training as well"),
        ({"variants.0.options.a": ["x\ny"]}, "variants.0.options.a: the value 'x\\ny' has unprintable characters"),
    ],
)
def test_invalid_sweeps_raise_one_line(sweep: dict[str, list[Any]], text: str) -> None:
    with pytest.raises(InputError) as caught:
        swept_paths(sweep, {})
    assert str(caught.value).startswith(f"sweep: {text}")
    assert str(caught.value).isprintable()


def test_a_sweep_of_too_many_sweep_points_is_refused_before_it_is_expanded() -> None:
    sweep = {path: list(range(1000)) for path in PATHS}
    with pytest.raises(InputError, match=rf"sweep: {1000**5} sweep points, more than the {MAX_SWEEP_POINTS}"):
        swept_paths(sweep, {})


def test_one_link_swept_under_two_names_is_refused() -> None:
    document = {"topology": {"links": [{"between": ["east", "west"]}]}}
    for other in ("topology.links.0.latency", "topology.links[west,east].latency"):
        sweep = {"topology.links[east, west].latency": ["1ms"], other: ["2ms"]}
        with pytest.raises(InputError, match="as well, leave one of them out"):
            swept_paths(sweep, document)
    with pytest.raises(InputError, match="as well, leave one of them out"):
        swept_paths({"topology.links[a, b].rate": [1], "topology.links[b, a].rate": [2]}, {})
    assert len(swept_paths({"topology.links[a, b].rate": [1], "topology.links[b to a].rate": [2]}, {})) == 2
