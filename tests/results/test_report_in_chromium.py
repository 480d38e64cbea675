"""The report as a browser shows it: on a wide and a narrow page, and in print."""

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from playwright.sync_api import Browser, Page, Route, sync_playwright

from tests.support.results.programs import ProgramOnPaper, program_run
from wanbed.results.report.report import write_report

BuildRun = Callable[..., Path]
CHROMIUM = "/usr/bin/chromium"
WIDTHS = (1280, 400)
A4_PX = 718
"""The width of a sheet of A4 less margins of a centimetre, at 96 pixels an inch."""

HOSTILE_VARIANTS = (
    "<script>document.title='broken'</script>",
    "\"quotes\" & 'apostrophes' <!-- $\\frac$",
    "long" * 75,
    "\u202eturned round",
    "</svg></style></table>",
)
HOSTILE_DATACENTERS = ("<img src=x onerror=alert(1)>", "east" * 75, "\u202etsew")
HEBREW = "\u05e9\u05dc\u05d5\u05dd \u05d4\u05e2\u05d1\u05e8\u05d9\u05ea"
HOSTILE_NAME = "<h1 onclick=alert(1)>\u202e" + "run" * 100


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not Path(CHROMIUM).exists():
        pytest.skip(f"{CHROMIUM} is not there: apt-get install chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@dataclass
class Opened:
    """A page with what went wrong while it loaded."""

    page: Page
    complaints: list[str]
    requests: list[str]


def opened(browser: Browser, report: Path) -> Opened:
    page = browser.new_page()
    found = Opened(page, [], [])

    def route(asked: Route) -> None:
        if asked.request.url == report.as_uri():
            asked.continue_()
        else:
            found.requests.append(asked.request.url)
            asked.abort()

    page.route("**/*", route)
    page.on("console", lambda message: found.complaints.append(message.text))
    page.on("pageerror", lambda fault: found.complaints.append(str(fault)))
    page.on("dialog", lambda dialog: (found.complaints.append(dialog.message), dialog.dismiss())[1])
    page.goto(report.as_uri())
    return found


Pages = Callable[[Path, int], Opened]


@pytest.fixture(scope="module")
def pages(browser: Browser) -> Pages:
    """Returns the page of a report at a width. Opened once for all tests, which only look at it; it has no script."""
    once = cache(partial(opened, browser))

    def resized(report: Path, width: int) -> Opened:
        found = once(report)
        found.page.set_viewport_size({"width": width, "height": 900})
        return found

    return resized


def sizes_of_pictures(page: Page) -> list[tuple[float, float]]:
    """Width and height of every picture that shows."""
    sizes: list[list[float]] = page.evaluate(
        "[...document.querySelectorAll('.drawing svg[role=img]')].map(each => each.getBoundingClientRect())"
        ".filter(box => box.width > 0).map(box => [box.width, box.height])"
    )
    return [(width, height) for width, height in sizes]


def overflow_px(page: Page) -> int:
    """By how much the page is wider than its window."""
    width: int = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    return width


def cut_off(page: Page) -> list[str]:
    """The texts outside pictures that reach beyond the page's right edge, but for what scrolls by itself."""
    texts: list[str] = page.evaluate(
        """[...document.querySelectorAll('h1,h2,h3,p,th,td,li,dd,figcaption')].filter(each =>
            !each.closest('.scroll') && each.getBoundingClientRect().right > window.innerWidth + 1)
            .map(each => each.textContent.slice(0, 60))"""
    )
    return texts


def narrowest_name_px(page: Page) -> float:
    """The width of the narrowest sweep point of the main table that names a variant or a run."""
    width: float = page.evaluate(
        "Math.min(...[...document.querySelectorAll('.headline tbody th[scope=row], .headline td.run')]"
        ".map(each => each.getBoundingClientRect().width))"
    )
    return width


@pytest.fixture(scope="module")
def several(build_run_in: Callable[[Path], BuildRun], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("several")
    build_run = build_run_in(folder)
    path = folder / "several.html"
    simulated = build_run(name="simulated atlas", manifest={"engine": "simulate", "clock": "virtual"})
    write_report([build_run(name="emulated atlas", repeats=2), simulated], path)
    return path


@pytest.fixture(scope="module")
def served(build_run_in: Callable[[Path], BuildRun], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    build_run = build_run_in(folder)
    path = folder / "served.html"
    runs = [
        build_run(
            name=name,
            variants=("atlas", *serving),
            latencies=("10ms",),
            repeats=2,
            prefill=dict.fromkeys(serving, 20.0),
        )
        for name, serving in (("one", HOSTILE_VARIANTS[:3]), ("other", HOSTILE_VARIANTS[:1]))
    ]
    write_report(runs, path)
    return path


@pytest.fixture(scope="module")
def hostile(build_run_in: Callable[[Path], BuildRun], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    build_run = build_run_in(folder)
    path = folder / 'a "quoted" <name> & #more?.html'
    runs = [
        build_run(name=name, variants=variants, latencies=("10ms",), datacenters=HOSTILE_DATACENTERS)
        for name, variants in ((HOSTILE_NAME, HOSTILE_VARIANTS), ("plain", HOSTILE_VARIANTS[:1]))
    ]
    write_report(runs, path)
    return path


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    path = folder / "programs.html"
    papers = {
        "ddp": ProgramOnPaper(),
        HOSTILE_VARIANTS[0]: ProgramOnPaper(profiled=2),
        "unprofiled": ProgramOnPaper(profiled=0),
    }
    write_report([program_run(folder / "runs", papers)], path)
    return path


@pytest.fixture(scope="module")
def one(build_run_in: Callable[[Path], BuildRun], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("one")
    write_report([build_run_in(folder)()], folder / "report.html")
    return folder / "report.html"


@pytest.mark.parametrize("width", WIDTHS)
def test_one_run_has_its_tables_and_figures_and_asks_for_nothing(pages: Pages, one: Path, width: int) -> None:
    shown = pages(one, width)
    assert (shown.complaints, shown.requests) == ([], [])
    assert shown.page.locator("table.headline").is_visible()
    assert shown.page.locator("table.calibration").is_visible()
    sizes = sizes_of_pictures(shown.page)
    assert len(sizes) == 3 + 2
    assert all(0.7 * min(width, 960) < picture <= width and height > 100 for picture, height in sizes)
    assert overflow_px(shown.page) <= 0
    assert cut_off(shown.page) == []


@pytest.mark.parametrize("width", WIDTHS)
def test_several_runs_have_theirs(pages: Pages, several: Path, width: int) -> None:
    shown = pages(several, width)
    assert (shown.complaints, shown.requests) == ([], [])
    assert shown.page.locator("table.headline").count() == 1
    assert shown.page.locator("table.differences").first.is_visible()
    assert shown.page.locator("table.calibration").count() == 2
    assert narrowest_name_px(shown.page) > 60
    assert len(sizes_of_pictures(shown.page)) == 3 + 2 * 2
    assert overflow_px(shown.page) <= 0
    assert cut_off(shown.page) == []


@pytest.mark.parametrize("width", WIDTHS)
def test_hostile_names_stay_text_and_within_the_page(pages: Pages, hostile: Path, width: int) -> None:
    shown = pages(hostile, width)
    assert (shown.complaints, shown.requests) == ([], [])
    assert shown.page.title() != "broken"
    assert shown.page.locator("script, img").count() == 0
    rows = shown.page.locator("table.headline tbody th[scope=row]").all_inner_texts()
    assert list(dict.fromkeys(row.strip() for row in rows)) == [
        name.replace("\u202e", "[U+202E]") for name in HOSTILE_VARIANTS
    ]
    assert re.sub("\u202e", "[U+202E]", HOSTILE_NAME) in shown.page.locator("h1").inner_text()
    assert len(sizes_of_pictures(shown.page)) == 3 + len(HOSTILE_VARIANTS) + 1
    assert overflow_px(shown.page) <= 0
    assert cut_off(shown.page) == []


@pytest.mark.parametrize("width", WIDTHS)
def test_prefill_has_its_tables_and_its_figure(pages: Pages, served: Path, width: int) -> None:
    shown = pages(served, width)
    assert (shown.complaints, shown.requests) == ([], [])
    tables = ("table.prefill", "table.prefill_service", "table.impact")
    assert [shown.page.locator(table).count() for table in tables] == [1, 1, 1]
    assert shown.page.get_by_role("heading", name="Prefill in the bubbles").is_visible()
    assert len(sizes_of_pictures(shown.page)) == 4 + 4 + 2
    assert overflow_px(shown.page) <= 0
    assert cut_off(shown.page) == []


@pytest.mark.parametrize("width", WIDTHS)
def test_programs_have_their_tables_and_stay_within_the_page(pages: Pages, programs: Path, width: int) -> None:
    shown = pages(programs, width)
    assert (shown.complaints, shown.requests) == ([], [])
    assert shown.page.locator("table.collectives").count() == 1
    assert shown.page.locator("table.programs").first.get_by_text("rank 2 on south-0", exact=True).first.is_visible()
    assert overflow_px(shown.page) <= 0
    assert cut_off(shown.page) == []


def test_every_word_of_a_picture_lies_within_it(
    pages: Pages, hostile: Path, several: Path, served: Path, programs: Path
) -> None:
    for report in (hostile, several, served, programs):
        for width in WIDTHS:
            outside = pages(report, width).page.evaluate(
                """[...document.querySelectorAll('.drawing svg[role=img]')].flatMap(svg => {
                    const box = svg.getBoundingClientRect();
                    return [...svg.querySelectorAll('text')].filter(text => box.width > 0 && (
                        text.getBoundingClientRect().left < box.left - 12 ||
                        text.getBoundingClientRect().right > box.right + 12)).map(text => text.textContent)})"""
            )
            assert outside == []


@pytest.fixture(scope="module")
def from_right_to_left(build_run_in: Callable[[Path], BuildRun], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hebrew")
    run = build_run_in(folder)(name=HEBREW, variants=("stock", HEBREW), datacenters=("east", HEBREW, "west"))
    write_report([run], folder / "report.html")
    return folder / "report.html"


@pytest.mark.parametrize("width", WIDTHS)
def test_a_name_from_right_to_left_leaves_the_numbers_beside_it_where_they_are(
    pages: Pages, from_right_to_left: Path, width: int
) -> None:
    turned = pages(from_right_to_left, width).page.evaluate(
        """name => {
            const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
            const box = (node, start, end) => {
                const range = document.createRange(); range.setStart(node, start); range.setEnd(node, end);
                return range.getBoundingClientRect();
            };
            let compared = 0;
            for (let node; node = walker.nextNode();) {
                for (let at = node.data.indexOf(name); at >= 0; at = node.data.indexOf(name, at + 1)) {
                    const end = at + name.length, digit = node.data.slice(end).search(/[0-9]/);
                    if (digit < 0) continue;
                    const named = box(node, at, end), number = box(node, end + digit, end + digit + 1);
                    if (!named.width || Math.abs(named.bottom - number.bottom) > 3) continue;
                    compared += 1;
                    if (number.left < named.right - 1) found.push(node.data);
                }
            }
            return [compared, found];
        }""",
        HEBREW,
    )
    assert turned[0] > 0
    assert turned[1] == []


def test_print_is_small_since_no_pattern_becomes_a_bitmap(pages: Pages, several: Path) -> None:
    assert "<pattern" not in several.read_text(encoding="utf-8")
    assert len(pages(several, A4_PX).page.pdf(format="A4")) < 1_000_000


def test_the_marker_of_a_long_name_stands_beside_its_first_line(pages: Pages, hostile: Path) -> None:
    for width in WIDTHS:
        apart: list[float] = pages(hostile, width).page.evaluate(
            """[...document.querySelectorAll('.headline tbody th[scope=row]')].map(name => {
                const range = document.createRange(); range.selectNodeContents(name.lastChild);
                const marker = name.querySelector('.swatch').getBoundingClientRect(), line = range.getClientRects()[0];
                return Math.abs((marker.top + marker.bottom - line.top - line.bottom) / 2)})"""
        )
        assert max(apart) < 6


@pytest.fixture
def printed(pages: Pages, several: Path) -> Iterator[Page]:
    page = pages(several, A4_PX).page
    page.emulate_media(media="print")
    yield page
    page.emulate_media(media="null")


def test_a_table_that_is_cut_at_the_edge_of_a_narrow_page_has_a_shadow_there(
    pages: Pages, build_run: BuildRun, tmp_path: Path
) -> None:
    variants = [
        {"name": name, "options": {f"field_{at}": f"{name}withoutabreak{at}" for at in range(6)}}
        for name in ("one", "other")
    ]
    described = {"experiment": {"variants": variants}}
    run = build_run(variants=("one", "other"), latencies=("10ms",), manifest=described)
    write_report([run], tmp_path / "report.html")
    page = pages(tmp_path / "report.html", 400).page
    table = page.locator(".scroll:has(.differing)")
    assert table.evaluate("each => each.scrollWidth > each.clientWidth + 20")

    def right_edge() -> tuple[int, ...]:
        """The colour of the last pixels of the table's upper right corner."""
        picture = plt.imread(io.BytesIO(table.screenshot()))
        return tuple(round(255 * float(each)) for each in picture[2, -2, :3])

    assert max(right_edge()) < 235
    table.evaluate("each => each.scrollLeft = each.scrollWidth")
    assert min(right_edge()) > 250


def test_print_has_every_picture_and_cuts_nothing(printed: Page) -> None:
    assert len(sizes_of_pictures(printed)) == 3 + 2 * 2
    assert overflow_px(printed) <= 0
    assert cut_off(printed) == []
    assert narrowest_name_px(printed) > 60
    scrolling = (
        "[...document.querySelectorAll('.scroll')].filter(each => each.scrollWidth > each.clientWidth + 1).length"
    )
    assert printed.evaluate(scrolling) == 0
    assert len(re.findall(rb"/Type\s*/Page\b", printed.pdf(format="A4"))) > 3
