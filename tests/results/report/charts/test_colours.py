import re
from itertools import pairwise

from wanbed.results.report.charts.colours import COMPUTE_COLOURS, Styles, variant_styles


def luminance(colour: str) -> float:
    channels = [int(part, 16) / 255 for part in re.findall("..", colour[1:])]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_every_variant_has_its_own_look() -> None:
    styles = variant_styles([f"variant {i}" for i in range(35)])
    assert len(set(styles.values())) == 35


def test_the_first_variants_differ_from_what_a_gpu_does() -> None:
    first = {style.colour for style in variant_styles(list("abcd")).values()}
    assert first.isdisjoint(COMPUTE_COLOURS.values())


def test_what_a_gpu_does_differs_in_lightness_and_not_only_in_hue() -> None:
    lightness = sorted(luminance(colour) for colour in set(COMPUTE_COLOURS.values()))
    assert len(lightness) == len(COMPUTE_COLOURS) - 1
    assert all((high + 0.05) / (low + 0.05) > 1.5 for low, high in pairwise(lightness))


def test_four_runs_have_a_line_each_and_alternate_in_filling() -> None:
    styles = Styles.of({f"run {number}": ["gpipe"] for number in range(4)})
    assert len({style.line for style in styles.runs.values()}) == 4
    assert all(one.filled != other.filled for one, other in pairwise(styles.runs.values()))


def test_a_variant_keeps_its_colour_and_marker_in_every_run() -> None:
    styles = Styles.of({"old": ["gpipe", "atlas"], "new": ["atlas", "varuna"]})
    for run in ("old", "new"):
        own = styles.of_series("atlas", run)
        assert (own.colour, own.marker) == (styles.variants["atlas"].colour, styles.variants["atlas"].marker)
    assert list(styles.variants) == ["gpipe", "atlas", "varuna"]
