import pytest

from studies.paper.claims import (
    ClaimSource,
    Headline,
    PaperClaim,
    SpeedUp,
    claims,
    claims_page,
    claims_table,
    speed_up_table,
    speed_ups,
)
from studies.paper.outcome import Outcomes
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


MBPS = 1e6


def claim(outcomes: Outcomes, statement: str) -> PaperClaim:
    """The only claim whose statement begins so."""
    (found,) = (each for each in claims(outcomes) if each.statement.startswith(statement))
    return found


def test_claims_without_runs_are_not_reproduced() -> None:
    found = claims(of())
    assert [each.statement for each in found if each.reproduced is not None] == [
        "training semantics unchanged: no compression, no staleness"
    ]
    assert all(each.ratio is None for each in found)


def test_figures_from_memory_are_marked_as_recalled() -> None:
    found = claims(of())
    recalled = {each.claimed for each in found if each.source is ClaimSource.RECALLED}
    assert recalled == {"1.22\u00a0Gbit/s", "600\u00a0Mbit/s", "396\u00a0Mbit/s", "293\u00a0Mbit/s", "5.00\u00a0Gbit/s"}


def test_a_single_connection_is_compared_with_the_recalled_rate() -> None:
    outcomes = of(outcome("fig5-tcp-bandwidth", "one connection", 1.0, "20ms", steady_goodput_bps=300 * MBPS))
    found = claim(outcomes, "one TCP connection at 20ms")
    assert (found.reproduced, found.ratio) == ("300\u00a0Mbit/s", pytest.approx(0.5))
    assert "one window a round trip" in found.why


def test_what_is_within_5_percent_is_the_same() -> None:
    outcomes = of(outcome("fig5-tcp-bandwidth", "one connection", 1.0, "40ms", steady_goodput_bps=300 * MBPS))
    assert claim(outcomes, "one TCP connection at 40ms").why == "the same within 5 %"


def test_many_connections_are_compared_with_the_cap() -> None:
    outcomes = of(outcome("fig5-tcp-bandwidth", "many connections", 1.0, "40ms", steady_goodput_bps=4750 * MBPS))
    found = claim(outcomes, "many TCP connections at 40ms")
    assert found.ratio == pytest.approx(0.95)
    assert "4.78\u00a0Gbit/s of payload" in found.why


def test_figures_2_and_3_compare_shapes() -> None:
    outcomes = of(
        *(outcome("fig2-dp-latency", "one connection", time_s, at) for at, time_s in (("1ms", 2.0), ("40ms", 20.0))),
        *(outcome("fig2-dp-latency", "many connections", time_s, at) for at, time_s in (("1ms", 2.0), ("40ms", 2.2))),
        *(outcome("fig3-pp-latency", "varuna", time_s, at) for at, time_s in (("1ms", 2.0), ("40ms", 12.0))),
    )
    assert claim(outcomes, "data parallelism over the WAN").reproduced == "10.0x the time at 40ms as at 1ms"
    assert claim(outcomes, "the same over many connections").reproduced == "1.10x the time at 40ms as at 1ms"
    assert claim(outcomes, "pipelines over one connection").reproduced == "6.00x the time at 40ms as at 1ms"


def test_bubbles_are_what_gpus_idle() -> None:
    outcomes = of(outcome("fig4-timeline", "varuna", 18.0, "", gpu_utilization=0.125))
    assert claim(outcomes, "Varuna at 40 ms").reproduced == "GPUs idle for 87.5\u00a0% of the time"


def test_the_speed_up_is_the_largest_over_any_single_tcp_baseline() -> None:
    outcomes = of(
        *timed("headline-gpt-a", {"gpipe": 30.0, "varuna": 20.0, "atlas": 3.0, "atlas, no idle restart": 2.5}),
        *timed("headline-deep", {"gpipe": 60.0, "atlas": 3.0, "atlas, no idle restart": 3.5}),
    )
    found = claim(outcomes, "up to 17 times faster")
    assert found.ratio == pytest.approx(20 / 17)
    assert found.reproduced == "20.0x: GPT-A, 12 stages, 1 pipeline, atlas against gpipe"


def test_utilization_counts_prefill_and_its_impact_is_a_ratio_of_iteration_times() -> None:
    outcomes = of(
        outcome("headline-bubbletea", "training alone", 2.5, ""),
        outcome("headline-bubbletea", "bubbletea", 2.5, "", gpu_utilization_with_prefill=0.987, deadline_overruns=3),
    )
    found = claim(outcomes, "up to 94 % GPU utilization")
    assert (found.reproduced, found.ratio) == ("98.7\u00a0%", pytest.approx(0.987 / 0.94))
    impact = claim(outcomes, "training does not notice")
    assert impact.reproduced == "iteration time 1.0000 of that without, 3 deadline overruns"


def test_the_sketch_is_compared_with_the_headline() -> None:
    outcomes = of(*timed("headline-gpt-a", {"gpipe": 31.8 * 1.1, "atlas": 2.1 * 1.01}))
    assert claim(outcomes, "GPT-A at 40ms: gpipe").ratio == pytest.approx(1.1)
    assert claim(outcomes, "GPT-A at 40ms: atlas").why == "the same within 5 %"


RUN = PaperClaim("Figure 5", "one | connection", ClaimSource.RECALLED, "293 Mbit/s", "300 Mbit/s", 1.024, "the window")

NOT_RUN = PaperClaim("Headline", "faster", ClaimSource.PAPER, "17x", None, None, "")

SPEED_UP = SpeedUp("GPT-A", "gpipe", 30.0, 12.0, None)


def points(line: str) -> list[str]:
    return [point.strip() for point in line.strip("| ").split(" | ")]


def test_every_claim_is_a_row() -> None:
    rows = claims_table([RUN, NOT_RUN]).splitlines()[2:]
    assert points(rows[0]) == [
        "Figure 5", "one &#124; connection", "recalled", "293 Mbit/s", "300 Mbit/s", "1.02", "the window",
    ]  # fmt: skip
    assert "| not run |" in rows[1]


def test_every_baseline_is_a_row_and_what_was_not_run_is_not_invented() -> None:
    (row,) = speed_up_table([SPEED_UP]).splitlines()[2:]
    assert points(row) == ["GPT-A", "gpipe", "30.0\u00a0s", "12.0x", "n/a"]


def test_the_page_says_what_its_figures_are_of_and_what_the_marks_mean() -> None:
    page = claims_page([RUN], [SPEED_UP], "Measured in virtual time.")
    assert page.startswith("# The paper's claims\n\nMeasured in virtual time.\n")
    for mark in ("*paper*", "*recalled*", "*ours*"):
        assert mark in page
    assert "## Atlas against every baseline over a single connection" in page
