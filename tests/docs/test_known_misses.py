"""The page about known misses: what it tells to type compares virtual time with a simulation."""

import re
from pathlib import Path

from tests.support.results.runs import flat, made
from wanbed.results.comparison.comparison import check

PAGE = Path(__file__).resolve().parents[2] / "docs" / "known-misses.md"


def test_its_comparison_allows_what_a_simulation_differs_in_and_no_more(tmp_path: Path) -> None:
    (command,) = re.findall(r"^\.venv/bin/wanbed (compare .*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    allowed = re.findall(r"--allow (\S+)", command)
    times = {("10ms", "x"): flat(1.0)}
    virtual = made(tmp_path / "virtual", times, clock="virtual")
    simulated = made(tmp_path / "simulated", times, engine="simulate", clock=None, substrate=None)
    assert check(virtual, simulated, allow=allowed).refused == ()
    assert [each.field for each in check(virtual, simulated).refused] == allowed
