import json
import re
from collections.abc import Callable
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from wanbed import results
from wanbed.results.records.run_store import RunError
from wanbed.results.report.charts.colours import variant_styles
from wanbed.results.report.report import write_report

BuildRun = Callable[..., Path]
HOSTILE = (
    "<script>alert(1)</script>",
    "$\\frac{a}{b}$ & \"quoted\" 'too'",
    "_hidden",
    "a{{ 7 * 7 }}b",
    "x]]>y<!--",
    "é☃",
)
ONE_LATENCY = ("10ms",)
"""For what a page says besides its curves over latencies, which are dear to draw."""


class Page(HTMLParser):
    """Collects what a browser would see: elements, the text of each, and exact figures."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(self.source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"[\s\u00a0]+", " ", " ".join(self.words))

    @property
    def figures(self) -> list[float]:
        values = [attributes["value"] for tag, attributes in self.tags if tag == "data"]
        return [float(value) for value in values if value]

    def svgs(self) -> list[str]:
        drawn = re.findall(r'<div class="(?:wide|narrow)">(<svg.*?</svg>)', self.source, flags=re.DOTALL)
        return [svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) for svg in drawn]


def report(tmp_path: Path, *runs: Path) -> Page:
    write_report(list(runs), tmp_path / "report.html")
    return Page(tmp_path / "report.html")


def test_the_totals_in_the_report_are_the_sums_over_the_traces(build_run: BuildRun, tmp_path: Path) -> None:
    path = build_run(repeats=2)
    run = results.load(path)
    page = report(tmp_path, path)
    links = run.link_samples[run.link_samples["scope"] == "link"]
    counters = links.groupby(["sweep_point", "variant", "repeat", "source", "destination"])["wire_bytes"]
    assert page.figures[-1] == (counters.max() - counters.min()).sum()
    spans = run.spans[
        (run.spans["sweep_point"] == 0) & (run.spans["variant"] == "one connection") & (run.spans["repeat"] == 0)
    ]
    crossing = spans[(spans["kind"] == "receive") & (spans["datacenter"] != spans["peer"].str.rsplit("-").str[0])]
    assert page.figures[4] == pytest.approx(crossing["size_bytes"].sum() * 1.05, rel=1e-6)


def test_the_headline_shows_what_the_summary_holds(build_run: BuildRun, tmp_path: Path) -> None:
    path = build_run()
    summary = results.load(path).summary
    figures = report(tmp_path, path).figures
    rows = [figures[6 * row : 6 * row + 6] for row in range(4)]
    fields = ["iteration_time_s", "makespan_s", "gpu_utilization", "wan_bytes", "wan_goodput_bps"]
    assert [[row[0], *row[2:]] for row in rows] == summary[fields].astype(float).to_numpy().tolist()


@pytest.fixture(scope="module")
def page(build_run_in: Callable[[Path], BuildRun], tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The page of one run like any other."""
    folder = tmp_path_factory.mktemp("page")
    return report(folder, build_run_in(folder)())


def test_the_page_is_complete_in_itself(page: Page) -> None:
    assert {"script", "link", "img", "iframe", "object", "image"}.isdisjoint(tag for tag, _ in page.tags)
    references = [value for _, attributes in page.tags for name, value in attributes.items() if name in {"src", "href"}]
    assert references == []
    assert re.findall(r"url\((?!#)", page.source) == []
    assert "@import" not in page.source
    assert all((attributes.get("xlink:href") or "#").startswith("#") for _, attributes in page.tags)


def test_all_charts_are_there_for_wide_and_narrow_pages_each_with_legend_and_reading(page: Page) -> None:
    tags = [tag for tag, _ in page.tags]
    assert tags.count("figure") == tags.count("figcaption") == 4
    assert sum(attributes.get("class") == "legend" for _, attributes in page.tags) == 4
    assert len(page.svgs()) == 2 * (3 + 2)
    for svg in page.svgs():
        root = ElementTree.fromstring(svg)  # noqa: S314 - our own page
        assert root.get("role") == "img"
        assert root.get("aria-label")


def test_no_name_within_the_page_is_given_twice_or_leads_nowhere(page: Page) -> None:
    identifiers = re.findall(r' id="([^"]*)"', page.source)
    assert len(identifiers) == len(set(identifiers))
    assert set(re.findall(r'(?:url\(|href=")#([^")]*)', page.source)) <= set(identifiers)


def test_hostile_names_are_only_ever_text(build_run: BuildRun, tmp_path: Path) -> None:
    path = build_run(name="<img src=x onerror=alert(1)>", variants=HOSTILE)
    page = report(tmp_path, path)
    assert {"script", "img", "b"}.isdisjoint(tag for tag, _ in page.tags)
    for name in HOSTILE:
        assert re.sub(r"\s+", " ", name) in page.text
        assert escape(name, quote=False).replace('"', "&#34;").replace("'", "&#39;") in page.source
    assert "<!--" not in page.source
    assert len(page.svgs()) == 2 * (3 + len(HOSTILE))
    for svg in page.svgs():
        ElementTree.fromstring(svg)  # noqa: S314 - our own page


def test_hostile_names_inside_a_picture_are_only_ever_text(build_run: BuildRun, tmp_path: Path) -> None:
    points = [{"index": i, "sweep_point": {f"<i>{i}</i>": "$\\frac{$ & <b>"}} for i in range(2)]
    page = report(tmp_path, build_run(variants=("stock",), manifest={"sweep_points": points}))
    assert {"i", "b"}.isdisjoint(tag for tag, _ in page.tags)
    words = [node.text for node in ElementTree.fromstring(page.svgs()[0]).iter() if node.text]  # noqa: S314 - our own page
    assert "<i>1</i> $\\frac{$ & <b>" in words


def test_a_variant_has_one_colour_throughout_all_runs(build_run: BuildRun, tmp_path: Path) -> None:
    first = build_run(name="first", variants=("a", "b"), latencies=ONE_LATENCY)
    second = build_run(name="second", variants=("b", "c"), latencies=ONE_LATENCY)
    page = report(tmp_path, first, second)
    for variant, style in variant_styles(["a", "b", "c"]).items():
        swatches = re.findall(rf'stroke="(#\w+)"[^<]*/><path[^<]*/></svg>{variant}(?:<|, iteration)', page.source)
        assert set(swatches) == {style.colour}
        # In the table and over the timeline in each run.
        assert len(swatches) == (4 if variant == "b" else 2)
        # In the legends of two charts that both share, one of points and one of areas.
        assert page.source.count(f'fill="{style.colour}"/></svg>{variant}</li>') == 2


def test_several_runs_share_one_table_and_one_set_of_charts(build_run: BuildRun, tmp_path: Path) -> None:
    page = report(tmp_path, build_run(name="old"), build_run(name="new"))
    assert page.source.count('<table class="headline results">') == 1
    assert page.source.count(">Iteration time against WAN latency<") == 1
    assert page.source.count(">What the GPUs&#39; time went into<") == 1
    assert page.source.count('<td class="run" data-label="run"><span>old</span></td>') == 4
    assert "One iteration of old, GPU by GPU" in page.text
    assert "One iteration of new, GPU by GPU" in page.text
    assert page.source.count('<table class="calibration calibration">') == 2


def test_what_differs_between_manifests_is_reported_field_by_field(build_run: BuildRun, tmp_path: Path) -> None:
    page = report(
        tmp_path,
        build_run(name="old", latencies=ONE_LATENCY),
        build_run(name="new", latencies=ONE_LATENCY, manifest={"clock_source": "hpet"}),
    )
    text = page.text[page.text.index("Differences between the runs' manifests") :]
    assert re.search(r"field old new .*name \"old\" \"new\" .*clock_source \(absent\) \"hpet\" ", text)
    assert "not comparable" not in page.text


@pytest.mark.parametrize(
    ("field", "value"), [("engine", "simulate"), ("clock", "virtual"), ("dilation", 2.0), ("seed", 7)]
)
def test_runs_that_differ_in_a_deciding_field_say_so_before_any_figure(
    build_run: BuildRun, tmp_path: Path, field: str, value: object
) -> None:
    page = report(
        tmp_path,
        build_run(name="old", latencies=ONE_LATENCY),
        build_run(name="new", latencies=ONE_LATENCY, manifest={field: value}),
    )
    assert page.text.index(f"The runs differ in {field}") < page.text.index("iteration time")


def test_a_run_among_several_whose_calibration_failed_says_so_before_any_figure(
    build_run: BuildRun, tmp_path: Path
) -> None:
    page = report(
        tmp_path,
        build_run(name="old", latencies=ONE_LATENCY),
        build_run(name="new", latencies=ONE_LATENCY, within_tolerance=False),
    )
    assert page.text.index("Calibration is missing or failed in new") < page.text.index("iteration time")


def test_invisible_characters_are_spelled_out_on_the_page(build_run: BuildRun, tmp_path: Path) -> None:
    page = report(tmp_path, build_run(latencies=ONE_LATENCY, variants=("\u202eright to left", "bell\a")))
    assert "[U+202E]right to left" in page.text
    assert "bell[U+0007]" in page.text
    assert "\u202e" not in page.source


def test_what_only_an_emulation_has_is_folded_away(build_run: BuildRun, tmp_path: Path) -> None:
    runs = [
        build_run(latencies=ONE_LATENCY, manifest={"offloads": {"0": {"tso": False, "gro": True}}}),
        build_run(latencies=ONE_LATENCY, manifest={"engine": "simulate", "clock": "virtual"}),
    ]
    page = report(tmp_path, *runs)
    open_table, folded = page.text[page.text.index("Differences between the runs' manifests") :].split(
        "Only an emulation"
    )
    assert " engine " in open_table
    assert "offloads" not in open_table
    assert folded.strip().startswith("has these: 2 fields of the machine and its network")
    assert "offloads.0.tso false (absent)" in folded


def test_an_incomplete_run_says_so_before_any_figure(build_run: BuildRun, tmp_path: Path) -> None:
    page = report(tmp_path, build_run(finished_trials=3))
    assert page.text.index("This run is incomplete: 3 of 4 trials") < page.text.index("iteration time")


def test_an_uncalibrated_run_says_so_before_any_figure_and_in_each_row(build_run: BuildRun, tmp_path: Path) -> None:
    page = report(tmp_path, build_run(within_tolerance=False))
    assert page.text.index("links outside tolerance") < page.text.index("iteration time")
    assert page.source.count('<span class="bad">no</span>') == 4 + 12


def test_a_saturated_machine_stands_in_its_row(build_run: BuildRun, tmp_path: Path) -> None:
    path = build_run(latencies=ONE_LATENCY)
    (trial,) = path.glob("trials/*/one*/repeat-0/trial.json")
    trial.write_text(json.dumps({**json.loads(trial.read_text()), "machine_load": {"saturated": 1.0}}))
    page = report(tmp_path, path)
    one, many = re.findall(r'<td class="text" data-label="calibrated">(.*?)</td>', page.source, flags=re.DOTALL)
    assert re.sub(r"<[^>]*>", " ", one).split() == ["yes,", "but", "saturated", "all", "cores", "100", "%"]
    assert re.sub(r"<[^>]*>", " ", many).split() == ["yes"]
    assert "Such figures measure the machine, not the network." in page.text


@pytest.mark.parametrize(("repeats", "intervals"), [(1, False), (2, False), (3, True)])
def test_a_page_has_an_interval_from_three_repeats_on(
    build_run: BuildRun, tmp_path: Path, repeats: int, intervals: bool
) -> None:
    page = report(tmp_path, build_run(latencies=ONE_LATENCY, repeats=repeats))
    assert ("95 % interval" in page.text) == ("bootstrap" in page.text) == intervals
    assert page.source.count(f"{repeats} repeat{'s' * (repeats > 1)}, no interval") == (0 if intervals else 2)


def test_a_run_without_a_finished_trial_has_a_report_too(build_run: BuildRun, tmp_path: Path) -> None:
    page = report(tmp_path, build_run(finished_trials=0))
    assert "No trial has finished: there is nothing to show yet." in page.text
    assert "0 of 4 trials had finished" in page.text


def test_the_table_of_very_many_rows_is_folded(build_run: BuildRun, tmp_path: Path, monkeypatch: Any) -> None:
    path = build_run()
    assert report(tmp_path, path).source.count("<summary>") == 1
    monkeypatch.setattr("wanbed.results.report.report.MAX_OPEN_ROWS", 3)
    assert "<details><summary>2 sweep points, 4 rows</summary>" in report(tmp_path, path).source


def test_a_folder_that_is_no_run_leaves_no_report(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not a run's folder"):
        write_report([tmp_path], tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []
