from pathlib import Path

import pytest

from tests.support.results.runs import flat, made
from wanbed.results.comparison.run_description import warnings
from wanbed.results.reading.not_modelled import (
    MAX_NAMED,
    MAX_SETTINGS,
    NotModelled,
    gathered,
    not_modelled_text,
    of_links,
    of_variant,
    planned_without,
    simulated_without,
)
from wanbed.results.reading.run_documents import check_manifest
from wanbed.results.records.run_store import RunError

EAST_WEST, EAST_MID = ("east", "west"), ("east", "mid")
LOSS = NotModelled("topology.wan.loss", "1%", (EAST_WEST,))
BBR = NotModelled("transport.congestion", "bbr", variants=("a",))
LINK = {"between": ["east", "west"], "latency_ns": 1, "jitter_ns": 0, "loss": 0.0}


def manifest(engine: str, *points: dict[str, object]) -> dict[str, object]:
    return {
        "engine": engine,
        "sweep_points": [{"index": index, "sweep_point": {}, **point} for index, point in enumerate(points)],
    }


def test_a_setting_is_named_with_its_links_or_its_variants() -> None:
    assert (LOSS.text, BBR.text) == ("loss 1% (east-west)", "congestion bbr (a)")
    assert [each.text_of_one for each in (LOSS, BBR)] == ["loss 1% (east-west)", "congestion bbr"]


def test_it_concerns_either_links_or_variants() -> None:
    for links, variants in (((), ()), ((EAST_WEST,), ("a",))):
        with pytest.raises(ValueError, match="either links or variants"):
            NotModelled("topology.wan.loss", "1%", links, variants)


def test_what_several_sweep_points_have_is_reported_once_with_all_links() -> None:
    other = NotModelled("topology.wan.loss", "1%", (EAST_MID,))
    assert gathered([BBR, LOSS, LOSS, other]) == (
        NotModelled("topology.wan.loss", "1%", (EAST_WEST, EAST_MID)),
        BBR,
    )
    assert not_modelled_text([LOSS, other, BBR]) == "loss 1% (east-west and east-mid) and congestion bbr (a)"
    assert not not_modelled_text([])


def test_of_many_the_first_few_are_named() -> None:
    many = NotModelled("topology.wan.loss", "1%", tuple(("east", f"dc{number}") for number in range(45)))
    assert many.text == f"loss 1% (east-dc0, east-dc1, east-dc2 and {45 - MAX_NAMED} more)"
    swept = [NotModelled("topology.wan.loss", f"{percent}%", (EAST_WEST,)) for percent in range(1, 10)]
    assert not_modelled_text(swept).endswith(f"loss 4% (east-west) and {9 - MAX_SETTINGS} more")


def test_a_setting_of_one_direction_names_it_and_concerns_every_variant() -> None:
    written = {
        "field": "topology.wan.loss",
        "asked": "1%",
        "links": [],
        "variants": [],
        "directions": [["west", "east"]],
    }
    (found,) = simulated_without(manifest("simulate", {"not_modelled": [written]}), 0)
    assert found.text == "loss 1% (west to east)"
    assert of_links(gathered([found, LOSS])) == of_variant(gathered([found, LOSS]), "a")
    assert not_modelled_text([found, LOSS]) == "loss 1% (east-west and west to east)"


def test_links_concern_every_variant() -> None:
    assert of_variant([LOSS, BBR], "a") == (LOSS, BBR)
    assert of_variant([LOSS, BBR], "b") == (LOSS,)
    assert of_links([LOSS, BBR]) == (LOSS,)


def test_each_sweep_point_of_a_manifest_has_its_own() -> None:
    written = {"field": "topology.wan.loss", "asked": "1%", "links": [["east", "west"]], "variants": []}
    run = manifest("simulate", {"not_modelled": []}, {"not_modelled": [written], "planned_without": [written]})
    assert [simulated_without(run, point) for point in range(3)] == [(), (LOSS,), ()]
    assert [planned_without(run, point) for point in range(3)] == [(), (LOSS,), ()]


def test_a_simulation_of_an_earlier_version_had_neither_loss_nor_jitter() -> None:
    lossy = {"wan": [{**LINK, "loss": 0.01}, {**LINK, "between": ["east", "mid"], "jitter_ns": 5_000_000}]}
    clean = {"wan": [LINK]}
    found = [not_modelled_text(simulated_without(manifest("simulate", lossy, clean), point)) for point in (0, 1)]
    assert found == ["loss 1.00% (east-west) and jitter 5.00ms (east-mid)", ""]
    assert simulated_without(manifest("emulate", lossy), 0) == ()


def test_a_report_warns_of_stages_that_were_placed_without(tmp_path: Path) -> None:
    written = {"field": "topology.wan.loss", "asked": "1%", "links": [["east", "west"]], "variants": []}
    points = [{"index": 0, "sweep_point": {"topology.wan.latency": "10ms"}, "planned_without": [written]}]
    (text,) = warnings(made(tmp_path, {("10ms", "atlas"): flat(1.0)}, sweep_points=points))
    assert text == (
        "The planner, which simulates, placed stages without loss 1% (east-west): with it another placement may be "
        "better."
    )


@pytest.mark.parametrize(
    "damaged",
    [
        "loss",
        [{"field": "topology.wan.loss"}],
        [{"field": "topology.wan.loss", "asked": "1%"}],
        [{"field": "topology.wan.loss", "asked": "1%", "links": [["east"]]}],
        [{"field": "topology.wan.loss", "asked": 0.01, "links": [["east", "west"]]}],
    ],
)
def test_a_damaged_entry_is_refused_in_one_line(damaged: object) -> None:
    lines = {"name": "x", "created": "now", "config_hash": "c0", "complete": True}
    for field in ("not_modelled", "planned_without"):
        with pytest.raises(RunError, match=rf"manifest.json: sweep_points.0.{field}") as refusal:
            check_manifest({**lines, **manifest("simulate", {field: damaged})}, "manifest.json")
        assert "\n" not in str(refusal.value)
