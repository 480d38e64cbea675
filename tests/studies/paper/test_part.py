from pathlib import Path

import pytest

from studies.paper.claims.speed_up import ATLAS, HEADLINES, TUNED, TUNED_ATLAS, UNTUNED
from studies.paper.part import FOLDER, PARTS, PaperPart, parts_named
from wanbed.ground.strict_model import InputError

RATE_BPS = 5 * 10**9


def test_every_experiment_of_the_paper_is_a_part_and_every_part_has_its_file() -> None:
    assert {path.stem for path in FOLDER.glob("*.yaml")} == {part.name for part in PARTS}


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_a_part_is_emulated_in_virtual_time_at_the_real_rates_and_has_the_name_of_its_file(part: PaperPart) -> None:
    experiment = part.experiment("emulate")
    assert (experiment.name, experiment.spec.clock) == (part.name, "virtual")
    for point in experiment.points():
        assert {link.conditions.pair_rate_bps for link in point.topology.wan} == {RATE_BPS}
        assert point.spec.training.iterations > point.spec.training.warmup >= 1


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_a_part_can_be_simulated_too(part: PaperPart) -> None:
    assert part.experiment("simulate").spec.engine == "simulate"


def test_every_single_connection_of_a_headline_is_a_baseline_and_nothing_else_is() -> None:
    parts = {part.name: part for part in PARTS}
    for headline in HEADLINES:
        connections = {
            variant.name: variant.transport.connections
            for name in headline.parts
            for variant in parts[name].experiment("emulate").spec.variants
        }
        assert {name for name, number in connections.items() if number == 1} == {*UNTUNED, *TUNED}
        assert {ATLAS, TUNED_ATLAS} <= {name for name, number in connections.items() if number == "auto"}


def test_parts_come_in_their_own_order_and_all_where_none_is_named() -> None:
    assert parts_named([]) == PARTS
    assert [part.name for part in parts_named(["headline-deep", "fig4-timeline"])] == ["fig4-timeline", "headline-deep"]


def test_a_part_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(InputError, match=r"--only: 'fig6' is no part of the paper: give one of fig2-dp-latency, "):
        parts_named(["fig6"])


def test_the_charts_that_are_published_as_files_are_on_the_page() -> None:
    for part in PARTS:
        assert set(part.figures) <= set(part.charts)
        assert part.file == Path(FOLDER / f"{part.name}.yaml")
