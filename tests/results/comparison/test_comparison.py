import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.results.runs import Times, flat, made
from wanbed.ground.errors import InputError
from wanbed.results.comparison.comparison import (
    Comparison,
    UnknownFieldError,
    check,
    compare,
    load_both,
    load_clocks,
    parse_margin,
)
from wanbed.results.comparison.markdown import pair_row
from wanbed.results.reading.run import Run, load_run


def against(tmp_path: Path, a: Times, b: Times, *, allow: tuple[str, ...] = (), **options: Any) -> Comparison:
    return compare(check(made(tmp_path, a), made(tmp_path, b, **options), allow=allow))


def times(**seconds: float) -> Times:
    return {("10ms", variant): flat(time_s) for variant, time_s in seconds.items()}


@pytest.mark.parametrize(
    ("b", "verdict"),
    [
        (times(x=1.0, y=1.0), "same"),
        (times(x=0.9, y=1.0), "improved"),
        (times(x=0.9, y=1.1), "regressed"),
        ({**times(x=0.9), ("10ms", "y"): []}, "no_data"),
        ({**times(x=1.1), ("10ms", "y"): []}, "regressed"),
        ({**times(x=0.9), ("10ms", "y"): [[1.0]]}, "no_data"),
    ],
)
def test_the_worst_pair_decides_and_one_that_was_not_measured_is_no_pass(
    tmp_path: Path, b: Times, verdict: str
) -> None:
    assert against(tmp_path, times(x=1.0, y=1.0), b).verdict == verdict


def test_an_unclear_pair_is_counted_and_does_not_regress(tmp_path: Path) -> None:
    noisy = {("10ms", "x"): [[1.0], [1.05], [0.95], [1.02], [0.98]]}
    comparison = against(tmp_path, noisy, noisy)
    assert (comparison.verdict, comparison.unclear) == ("same", 1)


def test_nothing_in_common_is_no_data_even_if_that_is_allowed(tmp_path: Path) -> None:
    comparison = against(tmp_path, times(x=1.0), times(y=1.0), allow=("variants",))
    assert (comparison.verdict, comparison.judgements) == ("no_data", ())


def test_a_sweep_point_of_only_one_run_is_refused_until_it_is_allowed(tmp_path: Path) -> None:
    a, b = times(x=1.0, y=1.0), {**times(x=1.0), ("20ms", "x"): flat(1.0)}
    refused = against(tmp_path, a, b)
    assert refused.verdict == "not_comparable"
    assert [(each.field, each.a, each.b) for each in refused.check.refused] == [
        ("sweep_points", "absent", "WAN latency 20ms"),
        ("variants", "y", "absent"),
    ]
    assert refused.judgements == ()
    allowed = against(tmp_path, a, b, allow=("sweep_points", "variants"))
    assert allowed.verdict == "same"
    assert len(allowed.judgements) == 1
    assert [each.field for each in allowed.check.allowed] == ["sweep_points", "variants"]


def test_allowing_a_field_allows_what_lies_below_it_and_nothing_beside(tmp_path: Path) -> None:
    a = times(x=1.0)
    for allow, verdict in (("seed", "not_comparable"), ("compute", "same"), ("compute.work.forward_ns", "same")):
        assert against(tmp_path, a, a, work_ns=1001, allow=(allow,)).verdict == verdict


def test_one_impairment_of_the_wan_is_allowed_by_its_name(tmp_path: Path) -> None:
    slower = {"latency_ns": lambda _: 11_000_000}
    for allow, verdict in (("topology.wan.rate", "not_comparable"), ("topology.wan.latency", "same")):
        assert against(tmp_path, times(x=1.0), times(x=1.0), allow=(allow,), **slower).verdict == verdict


@pytest.mark.parametrize(
    "field", ["calibration", "complete", "sweep_points", "variants", "topology.wan.latency", "seed"]
)
def test_a_known_field_may_be_allowed_though_it_does_not_differ(tmp_path: Path, field: str) -> None:
    assert against(tmp_path, times(x=1.0), times(x=1.0), allow=(field,)).verdict == "same"


def test_an_unknown_field_is_refused_with_the_nearest_known(tmp_path: Path) -> None:
    with pytest.raises(UnknownFieldError, match=r"no field 'topology.wan.latncy', did you mean 'topology.wan.latency'"):
        against(tmp_path, times(x=1.0), times(x=1.0), allow=("topology.wan.latncy",))
    with pytest.raises(UnknownFieldError, match=r"known are .*topology"):
        against(tmp_path, times(x=1.0), times(x=1.0), allow=("~",))


def test_the_document_is_json_that_a_script_can_rely_on(tmp_path: Path) -> None:
    document = json.loads(json.dumps(against(tmp_path, times(x=1.0), times(x=1.1)).document(), allow_nan=False))
    assert document["verdict"] == "regressed"
    (point,) = document["sweep_points"]
    assert point["swept"] == {"topology.wan.latency": "10ms"}
    assert (point["variant"], point["verdict"]) == ("x", "regressed")
    assert point["ratio"] == pytest.approx(1.1)
    assert point["interval"] == pytest.approx([1.1, 1.1])
    assert (point["repeats"], point["iterations"]) == ({"a": 3, "b": 3}, {"a": 6, "b": 6})
    assert document["differences"] == document["warnings"] == document["unpaired"] == []


def test_the_document_lists_refused_differences(tmp_path: Path) -> None:
    document = against(tmp_path, times(x=1.0, y=1.0), times(x=1.0), seed=1, allow=("seed",)).document()
    assert document["verdict"] == "not_comparable"
    assert document["sweep_points"] == []
    assert [(each["field"], each["allowed"]) for each in document["differences"]] == [
        ("variants", False),
        ("seed", True),
    ]
    assert document["unpaired"] == [{"field": "variants", "only_in": "A", "name": "y"}]


def described(a: Run, b: Run) -> tuple[str, ...]:
    return check(a, b).caveats


def test_another_machine_version_or_revision_is_a_warning(tmp_path: Path) -> None:
    a = made(tmp_path, times(x=1.0))
    assert described(a, made(tmp_path, times(x=1.0))) == ()
    b = made(tmp_path, times(x=1.0), host={"cpu": "two", "cores": 2}, git={"revision": "abd", "dirty": True})
    assert described(a, b) == (
        "B was run from a checkout with uncommitted changes: no revision reproduces it.",
        "host.cpu differs: one in A, two in B.",
        "git.revision differs: abc in A, abd in B.",
    )


def test_much_that_differs_in_one_section_is_one_warning_after_those_that_weigh_more(tmp_path: Path) -> None:
    read_back = {"0": {f"net.{name}": "1" for name in "abcde"}}
    lone = made(tmp_path, {("10ms", "x"): [[1.0, 1.0]]}, sysctls=read_back)
    first, second = described(lone, made(tmp_path, times(x=1.0)))
    assert first.startswith("A has 1 repeat:")
    assert second == "sysctls: only A has these 5, net.a (1), net.b (1), net.c (1) and 2 more."
    other = {"0": {**dict.fromkeys(read_back["0"], "2" * 99)}}
    _, second = described(lone, made(tmp_path, times(x=1.0), sysctls=other))
    assert second.startswith("sysctls: 5 differ, net.a (1 in A, 2222")
    assert len(second) < 250


def test_few_repeats_are_a_warning_but_for_those_that_need_none(tmp_path: Path) -> None:
    lone = {("10ms", "x"): [[1.0, 1.0]]}
    (warning,) = described(made(tmp_path, lone), made(tmp_path, times(x=1.0)))
    assert warning.startswith("A has 1 repeat:")
    two = made(tmp_path, {("10ms", "x"): [[1.0, 1.0], [1.0, 1.0]]})
    assert [text[:16] for text in described(two, made(tmp_path, times(x=1.0)))] == ["A has 2 repeats:"]
    assert described(*(made(tmp_path, lone, engine="simulate") for _ in range(2))) == ()
    assert described(*(made(tmp_path, lone, clock="virtual") for _ in range(2))) == ()


def test_one_repeat_in_virtual_time_is_judged_by_what_it_repeats_within(tmp_path: Path) -> None:
    a, slower = {("10ms", "x"): [[1.0]]}, {("10ms", "x"): [[1.05]]}
    virtual = [made(tmp_path, each, clock="virtual") for each in (a, slower)]
    comparison = compare(check(*virtual))
    (judgement,) = comparison.judgements
    assert (comparison.verdict, judgement.interval) == ("regressed", None)
    assert compare(check(virtual[0], made(tmp_path, a, clock="virtual"))).verdict == "same"


@pytest.mark.parametrize("drawn", [{"loss": 0.01}, {"jitter_ns": 1000}])
def test_random_impairments_need_repeats_in_virtual_time_too(tmp_path: Path, drawn: dict[str, Any]) -> None:
    runs = [made(tmp_path, {("10ms", "x"): [[1.0]]}, clock="virtual") for _ in range(2)]
    for run in runs:
        run.manifest["sweep_points"][0]["wan"][0].update(drawn)
    (judgement,) = compare(check(*map(load_again, runs))).judgements
    assert (judgement.verdict, judgement.interval) == ("no_data", None)


def load_again(run: Run) -> Run:
    (run.path / "manifest.json").write_text(json.dumps(run.manifest))
    return load_run(run.path)


def test_a_copy_of_a_run_is_reported(tmp_path: Path) -> None:
    a = made(tmp_path, times(x=1.0))
    shutil.copytree(a.path, tmp_path / "copy")
    assert described(a, load_run(tmp_path / "copy")) == (
        "A and B are copies of one run: that they agree shows nothing.",
    )


def test_an_overloaded_machine_is_a_warning_and_stands_in_the_row(tmp_path: Path) -> None:
    a, b = made(tmp_path, times(x=1.0)), made(tmp_path, times(x=1.0))
    for file in b.path.glob("trials/*/x/repeat-[01]/trial.json"):
        file.write_text(json.dumps({**json.loads(file.read_text()), "machine_load": {"saturated": 0.5}}))
    comparison = compare(check(a, load_run(b.path)))
    (warning,) = comparison.check.caveats
    assert warning.startswith("B was overloaded in 2 of its trials, first with x: the machine was saturated for 50%")
    (judgement,) = comparison.judgements
    assert pair_row(judgement)[6] == "same, B saturated"
    assert comparison.document()["sweep_points"][0]["saturated"] == {"a": 0, "b": 2}


def test_a_pair_is_judged_by_its_own_noise_floor_and_the_document_tells_the_largest(tmp_path: Path) -> None:
    checked = check(made(tmp_path, times(x=1.0, y=1.0)), made(tmp_path, times(x=1.04, y=1.04)))
    found = compare(checked, floors={(0, "x"): 0.05, (0, "y"): 0.01}, seed=7)
    assert [(each.verdict, each.margin, each.noise_floor) for each in found.judgements] == [
        ("same", 0.05, 0.05),
        ("regressed", 0.02, 0.01),
    ]
    document = found.document()
    assert (document["margin"], document["noise_floor"], document["seed"], document["metric"]) == (
        0.02,
        0.05,
        7,
        "iteration-time",
    )
    assert (document["unclear"], document["notes"]) == (0, [])
    plain = compare(checked, margin=0.05)
    assert (plain.verdict, plain.document()["noise_floor"], plain.seed) == ("same", None, 0)
    point = plain.document()["sweep_points"][0]
    assert (point["a_iteration_time_s"], point["b_iteration_time_s"], point["exact"]) == (1.0, 1.04, False)
    assert point["bound"] == {"a": None, "b": None}


def test_a_run_that_is_given_as_a_folder_twice_is_read_once(tmp_path: Path) -> None:
    run = made(tmp_path, times(x=1.0))
    first, second = load_both(run.path, run.path)
    assert first is second
    assert load_both(run, run)[0] is run
    other, same = load_both(run.path, run)
    assert same is run
    assert other is not run


def test_clocks_are_none_one_for_all_or_one_for_each(tmp_path: Path) -> None:
    run = made(tmp_path, times(x=1.0))
    assert load_clocks([], 3) == [None, None, None]
    assert load_clocks([run], 2) == [run, run]
    (first, second) = load_clocks([run, run.path], 2)
    assert first is run
    assert second is not None
    assert second.path == run.path
    with pytest.raises(InputError, match="--clock: 2 are given, and 3 runs to time"):
        load_clocks([run, run], 3)


@pytest.mark.parametrize(("text", "margin"), [("2%", 0.02), (" 0.5% ", 0.005), ("0%", 0.0), ("100%", 1.0)])
def test_a_margin_is_a_percentage(text: str, margin: float) -> None:
    assert parse_margin(text) == margin


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("2", "--margin 2: a percentage has its sign, write 2%"),
        (" 0.02 ", "--margin 0.02: a percentage has its sign, write 0.02%"),
        ("1e-1%", "--margin 1e-1%: an exponent is not read"),
        ("two%", "--margin: "),
        ("-1%", "--margin: "),
    ],
)
def test_a_margin_that_is_none_is_refused_with_the_remedy(text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_margin(text)
    assert str(caught.value).startswith(words)
