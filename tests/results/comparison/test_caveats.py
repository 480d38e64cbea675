"""Caveats beside a comparison, from the manifests alone."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.results.runs import flat, made
from wanbed.results.comparison.caveats import caveats
from wanbed.results.comparison.pairing import Pair, Side, pair_runs
from wanbed.results.reading.run import Run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return made(tmp_path_factory.mktemp("run"), {("10ms", "x"): flat(1.0)})


def said(run: Run, a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """Return the caveats of two runs whose manifests have these fields beside equal ones, and no pair."""
    one, other = (replace(run, manifest={**run.manifest, "run_id": name, **own}) for name, own in (("a", a), ("b", b)))
    return caveats(one, other, [])


def test_one_field_of_a_section_is_said_in_full_and_several_in_one_sentence(run: Run) -> None:
    assert said(run, {"versions": {"python": "3.11"}}, {"versions": {"python": "3.12"}}) == [
        "versions.python differs: 3.11 in A, 3.12 in B."
    ]
    assert said(run, {"versions": {"p": "1", "q": "2"}}, {"versions": {"p": "3", "q": "4"}}) == [
        "versions: 2 differ, p (1 in A, 3 in B) and q (2 in A, 4 in B)."
    ]
    mixed = said(run, {"versions": {"p": "1"}}, {"versions": {"q": "2"}})
    assert mixed == ["versions: 2 differ, p (1 in A, not set in B) and q (not set in A, 2 in B)."]


@pytest.mark.parametrize(("count", "more"), [(3, ""), (4, "1 more"), (9, "6 more")])
def test_three_fields_are_listed_and_the_others_counted(run: Run, count: int, more: str) -> None:
    fields = {f"f{number}": str(number) for number in range(count)}
    (only_b,) = said(run, {}, {"versions": fields})
    listed = "f0 (0), f1 (1), f2 (2)" if more else "f0 (0), f1 (1) and f2 (2)"
    assert only_b == f"versions: only B has these {count}, {listed}{f' and {more}' if more else ''}."
    (only_a,) = said(run, {"versions": fields}, {})
    assert only_a == only_b.replace("only B", "only A")


def test_a_value_in_a_list_has_40_characters_at_most(run: Run) -> None:
    (text,) = said(run, {}, {"versions": {"p": "x" * 40, "q": "y" * 41}})
    assert f"p ({'x' * 40})" in text
    assert "y" * 40 not in text


@pytest.mark.parametrize(
    "section",
    ["host", "gpus", "versions", "programs", "foreign_schedules", "foreign_compute", "machine_sysctls", "virtual_time"],
)
def test_every_circumstance_that_differs_is_said(run: Run, section: str) -> None:
    assert said(run, {section: {"f": "1"}}, {section: {"f": "2"}}) == [f"{section}.f differs: 1 in A, 2 in B."]


def test_what_was_read_back_is_compared_at_the_first_sweep_point(run: Run) -> None:
    one, other = {"0": {"net.a": "1"}, "1": {"net.a": "9"}}, {"0": {"net.a": "2"}, "1": {"net.a": "9"}}
    for name in ("sysctls", "offloads"):
        assert said(run, {name: one}, {name: other}) == [f"{name}.net.a differs: 1 in A, 2 in B."]
    assert said(run, {"substrate": {"kernel": "6.1"}}, {"substrate": {"kernel": "6.2"}}) == [
        "substrate.kernel differs: 6.1 in A, 6.2 in B."
    ]
    assert said(run, {"clock_source": "tsc"}, {"clock_source": "hpet"}) == [
        "clock_source differs: tsc in A, hpet in B."
    ]


def test_modelled_tcp_is_said_of_each_run_that_has_it(run: Run) -> None:
    relay = {"substrate": {"name": "relay", "tcp": "modelled"}}
    netem = {"substrate": {"name": "kernel"}}
    for a, b, names in ((relay, netem, "A"), (netem, relay, "B"), (relay, relay, "A and B")):
        assert f"TCP is modelled in {names}: the ratio says nothing about a kernel's TCP." in said(run, a, b)
    assert said(run, netem, netem) == []


def test_uncommitted_changes_of_a_run_compared_with_itself_are_said_once(run: Run) -> None:
    dirty = replace(run, manifest={**run.manifest, "git": {"revision": "abc", "dirty": True}})
    texts = caveats(dirty, dirty, [])
    assert [text[:30] for text in texts] == ["A was run from a checkout with"]
    git = {"git": dirty.manifest["git"]}
    assert [text[:1] for text in said(run, git, git)] == ["A", "B"]


def side(repeats: int, within: float | None = None) -> Side:
    return Side(0, "x", ((1.0,),) * repeats, exact=False, repeatable_within=within)


def test_few_repeats_are_said_by_the_fewest_of_each_run(run: Run) -> None:
    def repeats(*pairs: tuple[int, int]) -> list[str]:
        return caveats(run, run, [Pair({}, side(a), side(b)) for a, b in pairs])

    remedy = "how much repeats differ is not known, set repeats: 5."
    assert repeats((3, 5)) == []
    assert repeats((2, 3)) == [f"A has 2 repeats: {remedy}"]
    assert repeats((3, 2), (4, 1), (3, 2)) == [f"B has 1 repeat: {remedy}"]
    assert repeats((1, 1)) == [f"A has 1 repeat: {remedy}", f"B has 1 repeat: {remedy}"]
    assert repeats((0, 3)) == [], "what was not measured has no verdict anyway"
    assert caveats(run, run, [Pair({}, side(1, 0.0), side(1, 0.001))]) == []


def test_failures_of_a_pair_are_said_with_what_became_of_its_repeats(run: Run, tmp_path: Path) -> None:
    other = made(tmp_path, {("10ms", "x"): flat(1.0)})
    outcomes = iter([{"outcome": "stalled"}, {"outcome": "recovered"}, {"outcome": "recovered"}])
    trials = tuple(replace(trial, facts={**trial.facts, "faults": next(outcomes)}) for trial in run.trials)
    failed = replace(run, trials=trials)
    texts = caveats(failed, other, pair_runs(failed, other).pairs)
    (text,) = [each for each in texts if "had failures" in each]
    assert text.startswith("x at WAN latency 10ms had failures (3 repeats in A, 1 stalled and 2 recovered")
