"""Write figures, lists, names and tables as text for readers.

Figures have three significant digits and an SI unit after a no-break space; an unknown value is n/a.
"""

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from wanbed.ground.impairments import Impairment

NO_SWEEP = "no sweep"
"""The name of the sweep point of a run without a sweep, where it stands beside others."""

UNKNOWN = "n/a"

_SPACE = "\u00a0"

_SECONDS = ((1, "s"), (1e-3, "ms"), (1e-6, "µs"))

_RESIDUE_S = 1e-12
"""No clock here counts less than a nanosecond."""


def three_digits(value: float) -> str:
    """Format ``0.01234`` as ``0.0123``, ``1234.5`` as ``1,234``; keep trailing zeros that are significant."""
    return _digits(value, 3)


def _digits(value: float, digits: int) -> str:
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    rounded = round(value, decimals)
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded)))) if rounded else decimals
    return f"{rounded:,.{decimals}f}"


def usd_text(usd: float | None) -> str:
    """Format US dollars as ``0.0123 USD`` or ``1,234 USD``."""
    return UNKNOWN if usd is None or not math.isfinite(usd) else f"{three_digits(usd)}{_SPACE}USD"


def _scaled(value: float | None, units: tuple[tuple[float, str], ...], digits: int = 3) -> str:
    if value is None or not math.isfinite(value):
        return UNKNOWN
    factor, unit = next(((factor, unit) for factor, unit in units if abs(value) >= 0.9995 * factor), units[-1])
    return f"{_digits(value / factor, digits)}{_SPACE}{unit}"


def seconds_text(value_s: float | None) -> str:
    """Format seconds as ``1.23 s`` or ``45.6 ms``; what is left of a difference of equal times is 0."""
    return _scaled(0.0 if value_s is not None and abs(value_s) < _RESIDUE_S else value_s, _SECONDS)


def seconds_interval_text(interval_s: tuple[float, float]) -> str:
    """Format an interval as ``1.23 s to 1.25 s``, with three to six digits: as many as make its ends differ."""
    for digits in range(3, 7):
        low, high = (_scaled(end_s, _SECONDS, digits) for end_s in interval_s)
        if low != high:
            return f"{low} to {high}"
    return f"{seconds_text(interval_s[0])} to {seconds_text(interval_s[1])}"


def interval_text(shortest_s: float, longest_s: float) -> str:
    """Format a range of durations as ``250 ms to 1.00 s``, or as ``250 ms`` if both ends read alike."""
    texts = dict.fromkeys((seconds_text(shortest_s), seconds_text(longest_s)))
    return " to ".join(texts)


def milliseconds_text(value_ms: float | None) -> str:
    """Format milliseconds as ``40.1 ms``, without changing the unit."""
    return _scaled(value_ms, ((1, "ms"),))


def clock_text(clock_hz: float | None) -> str:
    """Format a device's clock as ``1,755 MHz``, the unit that NVIDIA's own tools print."""
    return UNKNOWN if clock_hz is None else f"{clock_hz / 1e6:,.0f}{_SPACE}MHz"


def held_down_text(throttled: Sequence[str]) -> str:
    """Format the reasons for which a clock was held down, to follow it; "" without any."""
    return f", held down by its {list_text([*throttled])}" if throttled else ""


def size_text(size_bytes: float | None) -> str:
    """Format bytes in decimal units, as ``1.21 GB``."""
    return _scaled(size_bytes, ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B")))


def rate_text(rate_bps: float | None) -> str:
    """Format bits per second as ``198 Mbit/s``."""
    return _scaled(rate_bps, ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1, "bit/s")))


def amount_text(amount: float | None) -> str:
    """Format a large number as ``29.2 million``."""
    return _scaled(amount, ((1e9, "billion"), (1e6, "million"), (1e3, "thousand"), (1, ""))).strip(_SPACE)


def percent_text(fraction: float | None) -> str:
    """Format a fraction as ``63.2 %``."""
    return UNKNOWN if fraction is None or math.isnan(fraction) else f"{three_digits(100 * fraction)}{_SPACE}%"


def ratio_text(ratio: float | None) -> str:
    """Format a factor as ``2.04x``."""
    return UNKNOWN if ratio is None or math.isnan(ratio) else f"{three_digits(ratio)}x"


def count_text(count: int, singular: str, plural: str = "") -> str:
    """Format a count as ``1 trial``, ``3 trials``; the plural is the singular with an s unless given."""
    return f"{count} {singular if count == 1 else plural or singular + 's'}"


def list_text(words: list[str]) -> str:
    """Join words as ``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def shortened(text: str, length: int) -> str:
    """Shorten the ``visible`` text to ``length`` characters by cutting its middle, since names differ at the end."""
    text = visible(text)
    tail = length // 3
    return text if len(text) <= length else f"{text[: length - tail - 1]}…{text[len(text) - tail :]}"


UNSEEN = {
    number: f"[U+{number:04X}]"
    for number in (
        *(code for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n"),
        *(
            0x061C,
            0x200B,
            0x200E,
            0x200F,
            *range(0x2028, 0x202F),
            0x2060,
            *range(0x2066, 0x206A),
            0xFEFF,
            0xFFFE,
            0xFFFF,
        ),
        *range(0xD800, 0xE000),
    )
}
"""The text in place of each character that is invisible or changes those around it, by its number."""


def visible(text: str) -> str:
    """Replace invisible characters, control characters and those that change text direction, by ``[U+XXXX]``."""
    return _ANY_UNSEEN.sub(lambda found: UNSEEN[ord(found[0])], text)


# To look for them takes a fraction of the time in which str.translate looks up each character of a page.
_ANY_UNSEEN = re.compile(f"[\ud800-\udfff{''.join(chr(code) for code in UNSEEN if not 0xD800 <= code < 0xE000)}]")

_KIND_NAMES = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "all_to_all": "all-to-all",
    "collective": "other collective",
    "norm": "all-reduce of the gradient norm",
}


def kind_text(kind: str) -> str:
    """Return the name of a kind of span: ``all_reduce`` as ``all-reduce``."""
    return _KIND_NAMES.get(kind, kind.replace("_", " "))


_FIRST_STRONG_ISOLATE, _POP_ISOLATE = "\u2068", "\u2069"

_RIGHT_TO_LEFT = "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]"

_PHRASE = re.compile(f"{_RIGHT_TO_LEFT}+(?:[ \u00a0'._-]{_RIGHT_TO_LEFT}+)*")


def isolated(text: str) -> str:
    """Return the text with isolates around every right-to-left phrase, so that numbers beside it keep their place.

    Without isolates, digits that follow a Hebrew or Arabic word are drawn before it (Unicode Standard Annex 9, rules W7
    and N1; isolates are rule X5c). Isolates also work in a picture's text and in a title, where HTML elements do not.
    """
    return _PHRASE.sub(lambda phrase: f"{_FIRST_STRONG_ISOLATE}{phrase[0]}{_POP_ISOLATE}", text)


def bound_text(ratio: float | None, part: str | None) -> str:
    """Return ``1.31x bound (gpu of stage 2)``; n/a without a bound."""
    return UNKNOWN if ratio is None or part is None else f"{ratio_text(ratio)} bound ({part})"


def impairment_text(impairment: Impairment, value: float | None) -> str:
    """Format a value, given in the unit of the impairment's column, as ``5.00 ms`` or ``1.00 %``."""
    return milliseconds_text(value) if impairment.is_duration else percent_text(value)


def json_text(document: Any) -> str:
    """Return the document as JSON, in which invisible characters and those that change text around them are escaped.

    A reader of the JSON gets the same document. Raise ValueError for a number that is not finite.
    """
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    return text.translate(_JSON_ESCAPES)


_JSON_ESCAPES = {code: f"\\u{code:04x}" for code in UNSEEN}

_MARKDOWN_ESCAPES = {
    **{character: f"\\{character}" for character in "\\`*_{}[]~$#"},
    **{character: f"&#{ord(character)};" for character in "<>&|@"},
}


def markdown_text(text: str) -> str:
    """Escape a text so that a table cell shows it literally, on one line."""
    return "".join(_MARKDOWN_ESCAPES.get(character, character) for character in " ".join(visible(text).split()))


def table_line(cells: Sequence[str]) -> str:
    """Return a table row; the cells must be Markdown already."""
    return f"| {' | '.join(cells)} |"
