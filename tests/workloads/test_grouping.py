"""The grouping that is found is the best one there is, and its time is the one of the formula."""

import itertools
import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.workloads.grouping import Grouping, SwappedLayer, SwappedModel, best_grouping

MOST_LAYERS = 9


def every_grouping(model: SwappedModel) -> Iterator[Grouping]:
    """Every way to cut the model into groups that fit into the memory."""
    layers = len(model.layers)
    for cuts in itertools.product((False, True), repeat=layers - 1):
        edges = [0, *(place for place, cut in enumerate(cuts, start=1) if cut), layers]
        try:
            yield Grouping(model, tuple(end - start for start, end in itertools.pairwise(edges)))
        except ValueError:
            continue


def random_model(seed: int) -> SwappedModel:
    dice = random.Random(seed)
    layers = tuple(
        SwappedLayer(dice.randrange(100), dice.randrange(200), dice.randrange(1, 100))
        for _ in range(dice.randint(1, MOST_LAYERS))
    )
    memory = dice.choice((None, dice.randint(60, 500)))
    return SwappedModel(layers, dice.randint(1, 4), dice.choice((10**8, 5 * 10**8, 3 * 10**9)), memory)


def played_ns(grouping: Grouping) -> int:
    """Play an iteration step by step: a group computes once it is loaded, and then the next load may begin."""
    groups = grouping.groups
    now_ns = groups[0].load_ns
    steps = [(group.forward_ns, place) for place, group in enumerate(groups)]
    steps += [(group.backward_ns, place) for place, group in reversed(list(enumerate(groups)))]
    for (compute_ns, place), (_, following) in itertools.pairwise([*steps, (0, steps[-1][1])]):
        loads = following != place
        loaded_ns = now_ns + groups[following].load_ns if loads else now_ns
        now_ns = max(now_ns + compute_ns, loaded_ns)
    return now_ns


@pytest.mark.parametrize("seed", range(100))
def test_the_best_grouping_is_as_fast_as_the_best_of_all(seed: int) -> None:
    model = random_model(seed)
    times_ns = [grouping.iteration_ns for grouping in every_grouping(model)]
    if not times_ns:
        with pytest.raises(ValueError, match="memory_bytes"):
            best_grouping(model)
        return
    assert best_grouping(model).iteration_ns == min(times_ns)


def test_some_of_the_random_models_fit_in_no_way_and_some_are_cut() -> None:
    models = [random_model(seed) for seed in range(100)]
    fitting = [model for model in models if any(True for _ in every_grouping(model))]
    assert 0 < len(fitting) < len(models)
    assert {len(best_grouping(model).sizes) > 1 for model in fitting} == {False, True}


layers = st.builds(SwappedLayer, st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**10))

models = st.builds(
    SwappedModel,
    st.lists(layers, min_size=1, max_size=7).map(tuple),
    st.integers(1, 64),
    st.integers(10**6, 10**11),
)


@given(models)
def test_the_formula_is_the_time_of_an_iteration_that_is_played(model: SwappedModel) -> None:
    for grouping in every_grouping(model):
        assert grouping.iteration_ns == played_ns(grouping)


@given(models)
def test_computing_and_stalls_are_all_of_an_iteration_and_are_shared_evenly(model: SwappedModel) -> None:
    grouping = best_grouping(model)
    computes_ns = sum(layer.forward_ns + layer.backward_ns for layer in model.layers) * model.microbatches
    stalls_ns = grouping.forward_stall_ns, grouping.backward_stall_ns
    assert grouping.iteration_ns == computes_ns + sum(stalls_ns)
    assert all(stall_ns % model.microbatches == 0 for stall_ns in stalls_ns)


def test_loads_hide_behind_computing_where_it_takes_longer() -> None:
    layers = (SwappedLayer(10, 20, 5),) * 4
    for memory_bytes, sizes in ((None, (1, 3)), (10, (1, 1, 1, 1))):
        grouping = best_grouping(SwappedModel(layers, 2, 10**9, memory_bytes))
        assert grouping.sizes == sizes
        assert grouping.iteration_ns == 6 + 4 * 2 * (10 + 20)


def test_neighbours_share_the_memory() -> None:
    layers = (SwappedLayer(1, 2, 50),) * 4
    Grouping(SwappedModel(layers, 1, 10**9, 100), (1, 1, 1, 1))
    with pytest.raises(ValueError, match="exceed 100 bytes"):
        Grouping(SwappedModel(layers, 1, 10**9, 100), (2, 1, 1))
    with pytest.raises(ValueError, match="memory_bytes: 99 hold no group of layers and the next one"):
        best_grouping(SwappedModel(layers, 1, 10**9, 99))


def test_a_model_of_a_hundred_layers_is_searched_at_once() -> None:
    dice = random.Random(7)
    layers = tuple(SwappedLayer(dice.randrange(100), dice.randrange(200), dice.randrange(100)) for _ in range(100))
    grouping = best_grouping(SwappedModel(layers, 8, 10**8, 10**3))
    assert sum(grouping.sizes) == len(layers)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("layers", ((), 1, 1, None)),
        ("microbatches", ((SwappedLayer(1, 1, 1),), 0, 1, None)),
        ("rate_bytes_per_s", ((SwappedLayer(1, 1, 1),), 1, 0, None)),
        ("memory_bytes", ((SwappedLayer(1, 1, 1),), 1, 1, -1)),
    ],
)
def test_a_model_that_cannot_be_is_refused(field: str, values: tuple) -> None:
    with pytest.raises(ValueError, match=field):
        SwappedModel(*values)


def test_groups_are_all_layers_of_the_model() -> None:
    with pytest.raises(ValueError, match=r"groups of \(1, 2\) layers do not make 2 layers"):
        Grouping(SwappedModel((SwappedLayer(1, 1, 1),) * 2, 1, 1), (1, 2))
