"""What was learnt from a log's first half says more about its second half than a constant link does."""

from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.runner.known_links import KnownLink, known_log
from wanbed.ground.units import parse_duration_ns, parse_fraction, parse_rate_bps
from wanbed.runner.learnt_links.condition_trace import write_trace
from wanbed.runner.learnt_links.held_out import CONSTANT, LEARNT, learn

SHARED = {
    "bursts": KnownLink(),
    "overload": KnownLink(cross_bps=24e6),
    "steady": KnownLink(cross_bps=10e6, busy_s=1e6),
    "noise": KnownLink(noise_s=50e-6),
    "fast": KnownLink(base_delay_s=0.080, rate_bps=100e6, cross_bps=90e6, buffer_bytes=100_000),
}


@pytest.mark.parametrize("link", SHARED.values(), ids=SHARED)
def test_the_learnt_link_is_nearer_to_the_delays_held_out_than_a_constant_one(link: KnownLink) -> None:
    learnt = learn(known_log(link), split=0.5, seed=1)
    assert learnt.truth is not None
    errors_ns = {name: each.error_ns(learnt.truth) for name, each in learnt.held_out.items()}
    print({name: f"{error_ns / 1e6:.2f} ms" for name, error_ns in errors_ns.items()})
    assert errors_ns[LEARNT] < errors_ns[CONSTANT]


def test_alone_on_the_link_every_model_is_exact() -> None:
    learnt = learn(known_log(KnownLink(cross_bps=0.0)), split=0.5, seed=1)
    assert learnt.truth is not None
    assert max(each.error_ns(learnt.truth) for each in learnt.held_out.values()) < 1e4


def test_the_same_seed_gives_the_same_result() -> None:
    log = known_log(KnownLink(), seconds=20)
    first, second = (learn(log, split=0.5, seed=5) for _ in range(2))
    assert first.held_out == second.held_out
    assert list(first.trace.lines()) == list(second.trace.lines())


def test_a_whole_log_leaves_nothing_to_judge() -> None:
    learnt = learn(known_log(KnownLink(), seconds=20), split=1.0, seed=1)
    assert (learnt.truth, learnt.held_out) == (None, {})


def test_the_trace_is_read_back_to_the_conditions_that_were_replayed(tmp_path: Path) -> None:
    learnt = learn(known_log(KnownLink(), seconds=20), split=0.5, seed=1)
    write_trace(learnt.trace, tmp_path / "trace.csv")
    header, *lines = (tmp_path / "trace.csv").read_text().splitlines()
    assert header == "t_s,latency,rate,loss"
    rows = [line.split(",") for line in lines]
    times = [float(row[0]) for row in rows]
    assert times[0] == 0
    assert times == sorted(set(times))
    assert all(before[1:] != after[1:] for before, after in pairwise(rows))
    conditions = learnt.trace.conditions
    held = {round(float(t_s) * 1e9) // conditions.piece_ns: row for t_s, *row in rows}
    row: list[str] = []
    for piece, (latency_ns, rate_bps, loss) in enumerate(
        zip(conditions.latency_ns, conditions.rate_bps, conditions.loss, strict=True)
    ):
        row = held.get(piece, row)
        assert (parse_duration_ns(row[0]), parse_rate_bps(row[1])) == (latency_ns, rate_bps)
        assert parse_fraction(row[2]) == pytest.approx(loss, abs=1e-12)
