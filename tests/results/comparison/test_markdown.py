import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.support.results.runs import Times, flat, made
from wanbed.results.comparison.comparison import Comparison, check, compare
from wanbed.results.comparison.judgement import judge
from wanbed.results.comparison.markdown import MAX_TEXT, escaped, markdown, pair_row, shortened, verdict_line
from wanbed.results.comparison.pairing import Pair, Side

HOSTILE = 'a|b`c`<img src=x onerror="alert(1)">\n| x | [l](http://evil) **bold** \u202e'


def compared(tmp_path: Path, a: Times, b: Times, allow: tuple[str, ...] = ()) -> Comparison:
    return compare(check(made(tmp_path, a), made(tmp_path, b), allow=allow))


def columns(line: str) -> int:
    return len(line.strip().strip("|").split("|"))


def test_every_pair_is_a_row_below_the_verdict(tmp_path: Path) -> None:
    text = markdown(compared(tmp_path, {("10ms", "x"): flat(1.0)}, {("10ms", "x"): flat(1.1)}))
    assert text.startswith("### wanbed compare: REGRESSED&#58; 1 of 1 pair")
    (row,) = (line for line in text.splitlines() if line.startswith("| WAN latency 10ms"))
    assert "| 1.100 | 1.100 to 1.100 | REGRESSED |" in row


def test_both_sides_are_set_against_their_lower_bounds_where_known(tmp_path: Path) -> None:
    bound = {"time_ns": 800_000_000, "part": "gpu of stage 2"}
    a, b = made(tmp_path, {("10ms", "x"): flat(1.0)}, bound=bound), made(tmp_path, {("10ms", "x"): flat(1.04)})
    comparison = compare(check(a, b))
    (row,) = (line for line in markdown(comparison).splitlines() if line.startswith("| WAN latency 10ms"))
    assert row.endswith("| 1.25x bound (gpu of stage 2) | n/a |")
    (document,) = comparison.document()["sweep_points"]
    assert document["bound"] == {"a": {"time_s": 0.8, "part": "gpu of stage 2", "over": 1.25}, "b": None}


def test_hostile_names_stay_text_in_their_cell(tmp_path: Path) -> None:
    text = markdown(compared(tmp_path, {("10ms", HOSTILE): flat(1.0)}, {("10ms", HOSTILE): flat(1.0)}))
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert {columns(line) for line in table} == {8}
    assert "<img" not in text
    assert "`" not in text
    assert "\u202e" not in text


@given(st.text())
def test_escaped_text_has_nothing_that_markdown_or_html_reads(text: str) -> None:
    shown = escaped(text)
    assert not set(re.sub(r"&#\d+;", "", shown)) & set("|`<>*_[]\\&#\n\r")
    assert shown.isprintable()


def test_refused_differences_are_listed_with_the_option_that_allows_them(tmp_path: Path) -> None:
    text = markdown(compared(tmp_path, {("10ms", "x"): flat(1.0)}, {("20ms", "x"): flat(1.0)}))
    assert "not comparable" in text
    assert "--allow FIELD" in text
    assert "| sweep&#95;points | WAN latency 10ms | absent |" in text


def test_the_verdict_is_reported_in_one_line(tmp_path: Path) -> None:
    same, faster, noisy = flat(1.0), flat(0.5), [[1.0], [1.05], [0.95]]
    for a, b, line in (
        (same, same, "same: 1 pair"),
        (same, faster, "improved: 1 of 1 pair, none regressed"),
        (faster, same, "REGRESSED: 1 of 1 pair"),
        (noisy, noisy, "not regressed: none of 1 pair; 1 of 1 pair UNCLEAR, and not counted as regressed"),
        ([[1.0]], [[1.0]], "NO DATA: 1 of 1 pair could not be judged"),
    ):
        assert verdict_line(compared(tmp_path, {("10ms", "x"): a}, {("10ms", "x"): b})) == line
    nothing = compared(tmp_path, {("10ms", "x"): same}, {("10ms", "y"): same}, ("variants",))
    assert verdict_line(nothing) == "NO DATA: no pair in common"


def test_long_values_keep_their_ends() -> None:
    text = f"start{'x' * 500}end"
    assert len(shortened(text)) == MAX_TEXT
    assert shortened(text).startswith("start")
    assert shortened(text).endswith("end")
    assert shortened("short") == "short"


def test_a_text_of_80_characters_is_whole_and_a_longer_one_loses_its_middle() -> None:
    assert shortened("x" * 80) == "x" * 80
    assert shortened("a" * 40 + "b" * 41) == "a" * 40 + "..." + "b" * 37


def test_caveats_and_allowed_differences_have_their_own_parts(tmp_path: Path) -> None:
    a, b = made(tmp_path, {("10ms", "x"): [[1.0, 1.0]]}), made(tmp_path, {("10ms", "x"): flat(1.0)}, seed=1)
    text = markdown(compare(check(a, b, allow=("seed",))))
    allowed, caveats = text.split("**Differences that were allowed**")[1].split("**Caveats**")
    assert "| seed | 0 | 1 |  |" in allowed
    assert caveats.strip().startswith("- A has 1 repeat")
    assert "forbid" not in text
    assert "Under test" not in text
    assert "margin: 2.00\u00a0%, confidence: 95 %" in text


def test_the_interval_or_why_there_is_none_stands_in_the_row() -> None:
    def shown(a: Side, b: Side, noise: float | None = None) -> str:
        return pair_row(judge(Pair({}, a, b), 0.02, noise))[5]

    exact = Side(0, "x", ((1.0,),), exact=True)
    few, two, enough = (Side(0, "x", ((1.0,),) * count, exact=False) for count in (1, 2, 3))
    assert shown(exact, exact) == "no noise"
    assert shown(enough, enough) == "1.000 to 1.000"
    assert (shown(few, enough), shown(enough, two), shown(exact, few)) == (
        "none, 1 repeat",
        "none, 2 repeats",
        "none, 1 repeat",
    )


def test_verdicts_of_several_pairs_are_counted(tmp_path: Path) -> None:
    base, mixed, faster = (
        made(tmp_path, {("10ms", "x"): flat(x), ("10ms", "y"): flat(y)})
        for x, y in ((1.0, 1.0), (1.1, 0.9), (1.0, 0.9))
    )
    assert verdict_line(compare(check(base, mixed))) == "REGRESSED: 1 of 2 pairs"
    assert verdict_line(compare(check(base, faster))) == "improved: 1 of 2 pairs, none regressed"
