"""Runs compare as they did, and have the figures that they had: who changes that on purpose records it anew.

``tests/support/recorded.py`` says how.
"""

import json
from pathlib import Path

import wanbed
from tests.support.recorded import check_recorded, digest
from tests.support.simulator.drawn_companions import drawn_beside
from wanbed.results.comparison.comparison import Comparison

_OF_THIS_TREE = {"a", "b", "warnings"}
"""The two folders, and what is said of the revision that made them."""


def text_of(comparison: Comparison) -> str:
    document = {name: value for name, value in comparison.document().items() if name not in _OF_THIS_TREE}
    content = json.dumps(document, sort_keys=True, default=str)
    return f"{comparison.verdict}, {len(comparison.judgements)} pairs, {digest(content)}"


def test_drawn_runs_compare_as_they_did_and_have_the_figures_that_they_had(tmp_path: Path) -> None:
    found = {}
    for number in (0, 3, 4, 8):
        one = drawn_beside(number)
        other = json.loads(json.dumps(one))
        other["topology"]["wan"]["latency"] = "30ms"
        if number % 3 == 0:
            other["variants"][0]["schedule"] = "gpipe"
        a, b = (
            wanbed.simulate(wanbed.Experiment(**{k: v for k, v in each.items() if k != "engine"}), runs=tmp_path / side)
            for side, each in (("a", one), ("b", other))
        )
        figures = a.summary.select_dtypes("number").to_csv(float_format="%.9g")
        found[f"figures {number}"] = digest(figures)
        found[f"comparison {number}"] = text_of(wanbed.compare(a, b))
        found[f"comparison {number}, latency allowed"] = text_of(wanbed.compare(a, b, allow=["topology.wan.latency"]))
    check_recorded(Path(__file__).with_name("recorded_comparisons.txt"), found)
