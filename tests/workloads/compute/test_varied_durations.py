"""Durations that are drawn: what they depend on, and how they are spread."""

import statistics
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.workloads.compute.varied_durations import MAX_SPREADS, Distribution, DurationDraws, Jitter, Variation

MS = 1_000_000
KINDS = ("forward", "recompute", "backward", "backward_input", "backward_weight")

variations = st.builds(
    Variation,
    seed=st.integers(0, 2**63 - 1),
    repeat=st.integers(0, 999),
    pipeline=st.integers(0, 1023),
    stage=st.integers(0, 1023),
    microbatches=st.integers(1, 20),
    jitter=st.builds(Jitter, st.sampled_from(Distribution), st.sampled_from([0.01, 0.05, 0.3])),
)


def gpu(distribution: Distribution, spread: float, **where: int) -> DurationDraws:
    place = {"seed": 0, "repeat": 0, "pipeline": 0, "stage": 0, "microbatches": 8, **where}
    return DurationDraws(Variation(**place, jitter=Jitter(distribution, spread)))


def test_draws_are_pinned_so_that_no_version_of_python_changes_them_unseen() -> None:
    drawn = {
        str(distribution): [
            gpu(distribution, 0.05).duration_ns(0, "forward", microbatch, 25 * MS) for microbatch in range(3)
        ]
        for distribution in Distribution
    }
    assert drawn == {
        "normal": [24870398, 23767053, 23701447],
        "lognormal": [24839783, 23768003, 23705751],
        "gamma": [24815531, 23932850, 25202704],
        "uniform": [24774201, 23428968, 23124879],
    }


@given(variation=variations, order=st.permutations(list(product(range(2), KINDS, range(4)))))
def test_a_draw_depends_on_its_action_and_not_on_the_order_of_actions(
    variation: Variation, order: list[tuple[int, str, int]]
) -> None:
    def drawn(actions: list[tuple[int, str, int]]) -> dict[tuple[int, str, int], int]:
        draws = DurationDraws(variation)
        return {action: draws.duration_ns(*action, 25 * MS) for action in actions}

    assert drawn(order) == drawn(sorted(order))


@given(variation=variations, more=st.integers(1, 100))
def test_more_microbatches_change_no_draw(variation: Variation, more: int) -> None:
    fields = {name: getattr(variation, name) for name in variation.__dataclass_fields__}
    longer = DurationDraws(Variation(**{**fields, "microbatches": variation.microbatches + more}))
    shorter = DurationDraws(variation)
    for microbatch in range(30):
        assert longer.duration_ns(0, "forward", microbatch, MS) == shorter.duration_ns(0, "forward", microbatch, MS)


@pytest.mark.parametrize("field", ["seed", "repeat", "pipeline", "stage"])
def test_every_part_of_the_key_gives_other_draws(field: str) -> None:
    one, other = (gpu(Distribution.NORMAL, 0.05, **{field: value}) for value in (0, 1))
    assert one.duration_ns(0, "forward", 0, 25 * MS) != other.duration_ns(0, "forward", 0, 25 * MS)


def test_iterations_kinds_and_microbatches_have_draws_of_their_own() -> None:
    draws = gpu(Distribution.NORMAL, 0.05)
    actions = [*product(range(3), KINDS, range(8)), *((iteration, "optimizer", -1) for iteration in range(3))]
    assert len({draws.duration_ns(*action, 10**12) for action in actions}) == len(actions)


@pytest.mark.parametrize("distribution", Distribution)
@pytest.mark.parametrize("spread", [0.02, 0.2, 1.0])
def test_mean_and_standard_deviation_are_as_configured(distribution: Distribution, spread: float) -> None:
    spread = min(spread, MAX_SPREADS[distribution])
    draws, count = gpu(distribution, spread, microbatches=40_000), 40_000
    drawn = [draws.duration_ns(0, "forward", microbatch, 25 * MS) / (25 * MS) for microbatch in range(count)]
    # Five standard errors; of the deviation, those of a distribution with a tail of this spread.
    assert statistics.fmean(drawn) == pytest.approx(1, abs=5 * spread / count**0.5)
    assert statistics.stdev(drawn) == pytest.approx(spread, rel=0.02 + 0.1 * spread)


@given(variation=variations, usual_ns=st.integers(0, 3))
def test_a_duration_is_at_least_a_nanosecond_and_nothing_stays_nothing(variation: Variation, usual_ns: int) -> None:
    drawn = {DurationDraws(variation).duration_ns(0, "forward", microbatch, usual_ns) for microbatch in range(8)}
    assert min(drawn) >= min(usual_ns, 1)
    assert usual_ns or drawn == {0}


def test_measured_durations_are_drawn_alike() -> None:
    measured_ns = [10 * MS, 11 * MS, 40 * MS]
    draws = DurationDraws(Variation(7, 0, 0, 0, 3000, None, {"forward": measured_ns}))
    drawn = [draws.duration_ns(0, "forward", microbatch, 11 * MS) for microbatch in range(3000)]
    assert set(drawn) == set(measured_ns)
    for each in measured_ns:
        assert drawn.count(each) == pytest.approx(1000, abs=130)
    assert draws.duration_ns(0, "backward", 0, 22 * MS) == 22 * MS


@pytest.mark.parametrize(("distribution", "most"), MAX_SPREADS.items())
def test_a_spread_beyond_the_distribution_is_refused(distribution: Distribution, most: float) -> None:
    Jitter(distribution, most)
    for spread in (0.0, most + 0.001):
        with pytest.raises(ValueError, match=r"^spread: "):
            Jitter(distribution, spread)
