import csv
import json
import os
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace

import pytest

from wanbed.ground.errors import InputError
from wanbed.ground.impairments import Impairments
from wanbed.netem_profiles import preset
from wanbed.netem_profiles.preset import load_preset, load_preset_spec, preset_names
from wanbed.testbed.network.links.wan_link import LinkConditions
from wanbed.testbed.network.topology import resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec

SHIPPED = ("aws", "azure", "gcp", "paper-10ms", "paper-20ms", "paper-30ms", "paper-40ms")
CLOUDS = ("aws", "azure", "gcp")
OWN = """
title: Two of our own
source: [{figures: all of them, origin: measured by ourselves}]
regions: [here, there]
pairs:
  - {between: [here, there], latency: 7.5ms, node_pair_rate: 2Gbit}
"""


def figures_folder() -> Path:
    repository = Path(__file__).resolve().parents[2]
    data = Path(os.environ.get("WANBED_DATA", repository.parent / "shared" / "data"))
    if not (data / "wan").is_dir():
        pytest.skip(f"the public WAN figures are not at {data}: set WANBED_DATA to check the presets against them")
    return data / "wan"


def half_rtt_ns(rtts_ms: list[float]) -> float:
    return sum(rtts_ms) / len(rtts_ms) / 2 * 1e6


def test_the_shipped_presets_are_known_by_name() -> None:
    assert preset_names() == SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_preset_gives_the_source_of_its_figures(name: str) -> None:
    for source in load_preset_spec(name).source:
        assert source.figures
        assert source.origin


@pytest.mark.parametrize("name", CLOUDS)
def test_every_pair_of_a_clouds_regions_has_a_latency_and_a_measured_rate(name: str) -> None:
    regions = load_preset_spec(name).regions
    assert len(set(regions)) == len(regions) >= 8
    links = load_preset(name, regions)
    assert set(links) == {frozenset(pair) for pair in combinations(regions, 2)}
    for conditions in links.values():
        assert 1_000_000 < conditions.latency_ns < 250_000_000
        assert conditions.node_pair_rate_bps is not None
        assert 10**9 < conditions.node_pair_rate_bps < 30 * 10**9


@pytest.mark.parametrize("latency_ms", [10, 20, 30, 40])
def test_the_papers_sweep_fits_datacenters_of_any_name(latency_ms: int) -> None:
    links = load_preset(f"paper-{latency_ms}ms", ["east", "central", "west"])
    expected = LinkConditions(latency_ms * 10**6, 100 * 10**9, 5 * 10**9)
    assert links == {frozenset(pair): expected for pair in combinations(["east", "central", "west"], 2)}


def test_the_papers_recalled_figures_are_marked_as_recalled() -> None:
    sources = load_preset_spec("paper-40ms").source
    assert any("recalled" in source.origin for source in sources if source.figures.startswith("node_pair_rate"))


def test_a_profile_resolves_a_topology() -> None:
    spec = TopologySpec.model_validate(
        {"datacenters": [{"name": "eastus", "hosts": 1}, {"name": "westeurope", "hosts": 1}], "profile": "azure"}
    )
    links = load_preset("azure", ["eastus", "westeurope"])
    topology = resolve_topology(spec, links)
    assert topology.conditions("westeurope", "eastus") == links[frozenset(("eastus", "westeurope"))]


def test_azure_latencies_are_half_the_published_round_trip() -> None:
    with (figures_folder() / "azure_rtt.csv").open(newline="") as file:
        table = {row["Source"].replace(" ", "").lower(): row for row in csv.DictReader(file)}
    headings = {heading.replace(" ", "").lower(): heading for heading in table["eastus"]}
    links = load_preset("azure", load_preset_spec("azure").regions)
    for (one, other), conditions in ((tuple(pair), found) for pair, found in links.items()):
        rtts = [float(table[one][headings[other]]), float(table[other][headings[one]])]
        assert conditions.latency_ns == pytest.approx(half_rtt_ns(rtts), rel=0.005)


def test_aws_latencies_are_half_the_median_round_trip() -> None:
    table = json.loads((figures_folder() / "aws_p50_rtt.json").read_text())["data"]
    links = load_preset("aws", load_preset_spec("aws").regions)
    for (one, other), conditions in ((tuple(pair), found) for pair, found in links.items()):
        assert conditions.latency_ns == pytest.approx(half_rtt_ns([table[one][other], table[other][one]]), rel=0.005)


def between_regions(file: str, cloud: str, column: str) -> dict[frozenset[str], list[float]]:
    found: dict[frozenset[str], list[float]] = {}
    with (figures_folder() / file).open(newline="") as lines:
        for row in csv.DictReader(lines):
            ends = (row["src_region"].split(":"), row["dst_region"].split(":"))
            premium = (row["src_tier"], row["dst_tier"]) == ("PREMIUM", "PREMIUM")
            if premium and {end[0] for end in ends} == {cloud}:
                names = (end[1][:-2] if cloud == "gcp" else end[1] for end in ends)
                found.setdefault(frozenset(names), []).append(float(row[column]))
    return found


def test_google_latencies_are_half_the_average_round_trip() -> None:
    rtts = between_regions("skyplane_latency.csv", "gcp", "avg_rtt")
    for pair, conditions in load_preset("gcp", load_preset_spec("gcp").regions).items():
        assert conditions.latency_ns == pytest.approx(half_rtt_ns(rtts[pair]), rel=0.005)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_node_pair_rates_are_the_measured_throughput(cloud: str) -> None:
    rates = between_regions("skyplane_throughput.csv", cloud, "throughput_received")
    for pair, conditions in load_preset(cloud, load_preset_spec(cloud).regions).items():
        assert conditions.node_pair_rate_bps == pytest.approx(sum(rates[pair]) / len(rates[pair]), rel=0.005)


def test_an_unknown_preset_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(InputError, match=r"'azur', did you mean 'azure'\?"):
        load_preset("azur", ["eastus"])
    with pytest.raises(InputError, match="known: aws, azure, gcp, paper-10ms"):
        load_preset("zzz", [])


def test_an_unknown_region_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(
        InputError, match=r"network preset azure: datacenter 'eastuss' is not one of its regions, .* 'eastus'\?"
    ):
        load_preset("azure", ["eastuss", "westus"])


def test_one_datacenter_alone_has_no_links() -> None:
    assert load_preset("azure", ["anywhere"]) == {}


def test_a_users_own_file_works_as_well_as_a_name(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(OWN)
    expected = {frozenset(("here", "there")): LinkConditions(7_500_000, None, 2 * 10**9)}
    assert load_preset(str(tmp_path / "own.yaml"), ["there", "here"]) == expected
    assert load_preset("own.yaml", ["here", "there"], relative_to=tmp_path) == expected


def test_pair_takes_missing_fields_from_the_default(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(OWN + "default: {latency: 20ms, rate: 10Gbit, loss: 0.1%}\n")
    links = load_preset("own.yaml", ["here", "there", "elsewhere"], relative_to=tmp_path)
    assert links[frozenset(("here", "there"))] == LinkConditions(7_500_000, 10**10, 2 * 10**9, Impairments(loss=0.001))
    assert links[frozenset(("here", "elsewhere"))] == LinkConditions(20_000_000, 10**10, None, Impairments(loss=0.001))


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        (OWN.replace("7.5ms", "7.5"), r"own\.yaml: pairs\.0\.latency: 7\.5 has no unit"),
        (OWN.replace("latency", "latncy"), r"own\.yaml: pairs\.0\.latncy: unknown field, did you mean 'latency'\?"),
        (OWN.replace("[here, there]\np", "[here, there, yonder]\np"), "no entry in pairs for here and yonder"),
        (
            OWN.replace("between: [here, there]", "between: [here, nowhere]"),
            "does not join two of the preset's regions",
        ),
        (OWN + "  - {between: [there, here]}\n", "is given twice"),
        (OWN.replace("source", "#"), "source: this field is required"),
        (OWN + "title: again\n", r"own\.yaml: line 7: the field 'title' is given twice"),
        ("title: x\nsource: [{figures: a, origin: b}]\n", "a default, or at least two regions"),
        ("[" * 5000, r"own\.yaml: line 1: nested more than 40 deep"),
        ("- list\n", r"own\.yaml: a list, not a mapping"),
        ("title: !!bool x\n", r"own\.yaml: line 1: 'x' cannot be read as true or false"),
        ("title: [unclosed\n", r"own\.yaml: line 2"),
        ("title: \x00\n", r"own\.yaml: line 1: a control character"),
    ],
)
def test_an_unusable_file_is_refused_in_one_line(tmp_path: Path, text: str, refusal: str) -> None:
    (tmp_path / "own.yaml").write_text(text)
    with pytest.raises(InputError, match=refusal) as refused:
        load_preset("own.yaml", ["here", "there"], relative_to=tmp_path)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"missing\.yaml: cannot be read \(No such file"):
        load_preset("missing.yaml", [], relative_to=tmp_path)


def entry_point(name: str, target: object) -> SimpleNamespace:
    return SimpleNamespace(
        name=name, value="somebody:profile", dist=SimpleNamespace(name="somebody"), load=lambda: target
    )


def test_another_package_adds_a_preset_by_an_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.yaml").write_text(OWN)
    monkeypatch.setattr(preset, "installed", lambda _: [entry_point("theirs", tmp_path / "own.yaml")])
    assert "theirs" in preset_names()
    assert load_preset("theirs", ["here", "there"])[frozenset(("here", "there"))].latency_ns == 7_500_000


def test_another_package_cannot_take_a_shipped_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preset, "installed", lambda _: [entry_point("azure", tmp_path / "own.yaml")])
    with pytest.raises(
        InputError, match="'azure': the name is taken already, rename the preset of the package somebody"
    ):
        load_preset("azure", [])


def test_an_entry_point_that_leads_to_no_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preset, "installed", lambda _: [entry_point("theirs", 7)])
    with pytest.raises(InputError, match="'theirs': the entry point somebody:profile of somebody"):
        preset_names()
