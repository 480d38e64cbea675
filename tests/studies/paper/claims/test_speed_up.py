import pytest

from studies.paper.claims.speed_up import Headline, speed_ups
from tests.studies.paper.outcomes import of, outcome, timed

HEADLINES = (Headline("one", ("a", "b")), Headline("two", ("c",)))


def test_every_single_tcp_baseline_is_compared_with_both_atlas_variants() -> None:
    outcomes = of(
        *timed("a", {"gpipe": 30.0, "atlas": 3.0, "atlas, no idle restart": 2.0, "varuna, many connections": 4.0}),
        *timed("b", {"varuna, bbr": 6.0}),
    )
    found = speed_ups(outcomes, HEADLINES)
    assert [(each.headline, each.baseline, each.baseline_s) for each in found] == [
        ("one", "gpipe", 30.0),
        ("one", "varuna, bbr", 6.0),
    ]
    assert [(each.atlas, each.tuned_atlas, each.most) for each in found] == [
        (pytest.approx(10.0), pytest.approx(15.0), pytest.approx(15.0)),
        (pytest.approx(2.0), pytest.approx(3.0), pytest.approx(3.0)),
    ]


def test_other_latencies_do_not_count() -> None:
    assert speed_ups(of(outcome("a", "gpipe", 9.0, latency="10ms")), HEADLINES) == []


def test_without_atlas_there_is_no_ratio() -> None:
    (found,) = speed_ups(of(*timed("c", {"gpipe": 30.0})), HEADLINES)
    assert (found.atlas, found.tuned_atlas, found.most) == (None, None, 0.0)
