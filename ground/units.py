"""Parse and format quantities with units. No other module handles unit strings.

Durations become integer nanoseconds, rates integer bits per second (``None`` is unlimited), sizes integer bytes,
percentages a fraction, and prices US dollars for what their name says. Rates are decimal (``1Gbit`` is 10^9 bit/s);
sizes follow their prefix (``MB`` is 10^6 bytes, ``MiB`` is 2^20). A bare number is refused, because its unit is
ambiguous.

Every quantity has a largest value: far above anything in training, and small enough that sums and products fit in 64
bits. A longer text or a larger value is refused before any computation with it.
"""

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from wanbed.ground.errors import MAX_DIGITS, shown

_QUANTITY = re.compile(r"^\s*([+-]?\d+(?:\.\d+)?)\s*([A-Za-zµ%/]+)\s*$", re.ASCII)

_DURATION_NS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}
_RATE_BPS = {
    f"{prefix}{suffix}": factor
    for prefix, factor in {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}.items()
    for suffix in ("bit", "bit/s", "bps")
}
_NEVER_WRITTEN = {"µs", "min", "h"}
"""Units of durations that are understood and not used in texts: documents of earlier runs stay the same."""

_SIZE_BYTES = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}

_PER_SECOND = "/s"

_GPU_PRICE_USD = {"USD/h": 1}
_EGRESS_PRICE_USD = {"USD/GB": Decimal(1), "USD/GiB": Decimal(10**9) / 2**30, "USD/TB": Decimal("0.001")}
_COST_USD = {"USD/h": 1, "USD/Mtoken": 1}

UNLIMITED = "unlimited"

_DURATION = ("a duration", "40ms, 50us or 2s")
_RATE = ("a rate", "5Gbit, 200Mbit or unlimited")
_SIZE = ("a size", "32MiB or 64KiB")
_FRACTION = ("a percentage", "0.1%")
_GPU_PRICE = ("a price of a GPU", "2.10USD/h")
_EGRESS_PRICE = ("a price of sent bytes", "0.05USD/GB")
_COST = ("a cost", "40USD/h or 0.50USD/Mtoken")
"""The name of each quantity in messages, and examples of its notation."""

MAX_DURATION_NS = 86_400 * 10**9
"""One day: longer than any computation of a microbatch and any deadline."""
MAX_RATE_BPS = 10**15
"""1000 Tbit/s, more than a submarine cable carries. For a link without a limit write ``unlimited``."""
MAX_SIZE_BYTES = 2**42
"""4 TiB: the gradients of 10^12 weights of 4 bytes each."""
MAX_PRICE_USD = 10**6
"""The highest price and cost, whatever they are for."""

_MAX_CHARACTERS = MAX_DIGITS + 20
"""Longest text of a quantity, with its decimal point, spaces and unit."""


def _parse(text: object, units: Mapping[str, int | Decimal], what: str, example: str) -> Decimal:
    if isinstance(text, int | float) and not isinstance(text, bool):
        raise ValueError(f"{shown(text)} has no unit: write {what} like {example}")
    match = _QUANTITY.match(text) if isinstance(text, str) else None
    if not isinstance(text, str) or match is None:
        written = "null" if text is None else shown(text)
        raise ValueError(f"{written} is not {what}: write it like {example}")
    number, unit = match.groups()
    if unit not in units:
        raise ValueError(
            f"{shown(text)} has the unit {shown(unit)}, not one of {what} ({', '.join(units)}): write it like {example}"
        )
    if len(text) > _MAX_CHARACTERS:
        raise ValueError(
            f"{shown(text)} has {len(text)} characters, {what} at most {_MAX_CHARACTERS}: write it like {example}"
        )
    value = Decimal(number)
    if value.is_signed():
        raise ValueError(f"{text!r} is negative: {what} is zero or more")
    return value * units[unit]


def _at_most(most: int, value: Decimal, text: object, largest: str) -> int:
    if value > most:
        raise ValueError(f"{text!r} is above {largest}: give less")
    return round(value)


def parse_duration_ns(text: object) -> int:
    """Parse ``"40ms"`` to 40_000_000 ns, rounded to whole nanoseconds and at most ``MAX_DURATION_NS``.

    Raise ValueError with the remedy.
    """
    value = _parse(text, _DURATION_NS, *_DURATION)
    return _at_most(MAX_DURATION_NS, value, text, f"{format_duration(MAX_DURATION_NS)}, the longest duration")


def parse_rate_bps(text: object) -> int | None:
    """Parse ``"2.5Gbit"`` to 2_500_000_000 bit/s, at most ``MAX_RATE_BPS``, and ``"unlimited"`` to None.

    Raise ValueError with the remedy, also for a rate below 1 bit/s.
    """
    if text == UNLIMITED:
        return None
    value = _parse(text, _RATE_BPS, *_RATE)
    if value < 1:
        raise ValueError(f"{text!r} is below 1 bit/s: a link needs a rate, or unlimited")
    return _at_most(MAX_RATE_BPS, value, text, f"{format_rate(MAX_RATE_BPS)}, the highest rate beside unlimited")


def parse_size_bytes(text: object) -> int:
    """Parse ``"32MiB"`` to 33_554_432 bytes, at most ``MAX_SIZE_BYTES``. Raise ValueError with the remedy."""
    value = _parse(text, _SIZE_BYTES, *_SIZE)
    return _at_most(MAX_SIZE_BYTES, value, text, f"{format_size(MAX_SIZE_BYTES)}, the largest size")


def parse_bytes_per_s(text: object) -> int:
    """Parse ``"12GB/s"`` to 12_000_000_000 bytes per second. Raise ValueError with the remedy."""
    if not isinstance(text, str) or not text.rstrip().endswith(_PER_SECOND):
        raise ValueError(f"{shown(text)} is not bytes per second: write it like 12GB/s")
    bytes_per_s = parse_size_bytes(text.rstrip().removesuffix(_PER_SECOND))
    if bytes_per_s < 1:
        raise ValueError(f"{shown(text)} is below 1B/s: give more")
    return bytes_per_s


def parse_fraction(text: object) -> float:
    """Parse ``"0.1%"`` to 0.001. Raise ValueError with the remedy, also above 100 %."""
    value = _parse(text, {"%": 1}, *_FRACTION)
    if value > 100:
        raise ValueError(f"{text!r} is above 100%")
    return float(value / 100)


def parse_usd_per_gpu_hour(text: object) -> float:
    """Parse ``"2.10USD/h"`` to 2.1 US dollars for an hour of one GPU. Raise ValueError with the remedy."""
    return _usd(_parse(text, _GPU_PRICE_USD, *_GPU_PRICE), text, "USD/h")


def parse_usd_per_gb(text: object) -> float:
    """Parse ``"0.05USD/GB"`` to 0.05 US dollars for 10^9 bytes. Raise ValueError with the remedy."""
    return _usd(_parse(text, _EGRESS_PRICE_USD, *_EGRESS_PRICE), text, "USD/GB")


def parse_cost(text: object) -> tuple[float, str]:
    """Parse ``"40USD/h"`` or ``"0.5USD/Mtoken"``, a million tokens, to US dollars and the unit.

    Raise ValueError with the remedy.
    """
    value = _parse(text, _COST_USD, *_COST)
    unit = next(unit for unit in _COST_USD if str(text).rstrip().endswith(unit))
    return _usd(value, text, unit), unit


def _usd(value: Decimal, text: object, unit: str) -> float:
    if value > MAX_PRICE_USD:
        raise ValueError(f"{text!r} is above {MAX_PRICE_USD}{unit}: give less")
    return float(value)


def _shortest(value: int, units: dict[str, int]) -> str:
    for unit, factor in sorted(units.items(), key=lambda item: -item[1]):
        if value and value % factor == 0:
            return f"{value // factor}{unit}"
    fitting = [(unit, factor) for unit, factor in units.items() if value >= factor]
    if not fitting:
        return f"0{min(units, key=lambda unit: units[unit])}"
    unit, factor = max(fitting, key=lambda item: item[1])
    return f"{(Decimal(value) / factor).normalize():f}{unit}"


def format_duration(duration_ns: int) -> str:
    """Return the shortest exact text of a duration; ``parse_duration_ns`` parses it to the same value."""
    return _shortest(duration_ns, {unit: factor for unit, factor in _DURATION_NS.items() if unit not in _NEVER_WRITTEN})


def format_rate(rate_bps: int | None) -> str:
    """Return the shortest exact text of a rate; ``parse_rate_bps`` parses it to the same value."""
    if rate_bps is None:
        return UNLIMITED
    return _shortest(rate_bps, {"bit": 1, "kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9, "Tbit": 10**12})


def format_size(size_bytes: int) -> str:
    """Return the shortest exact text of a size; ``parse_size_bytes`` parses it to the same value."""
    return _shortest(size_bytes, {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30})


def format_bytes_per_s(bytes_per_s: int) -> str:
    """Return the shortest exact text of bytes per second; ``parse_bytes_per_s`` parses it to the same value."""
    return f"{format_size(bytes_per_s)}{_PER_SECOND}"


def format_fraction(fraction: float) -> str:
    """Format ``0.001`` as ``"0.1%"``."""
    return f"{(Decimal(str(fraction)) * 100).normalize():f}%"


def format_usd_per_gpu_hour(usd: float) -> str:
    """Return the exact text of a price; ``parse_usd_per_gpu_hour`` parses it to the same value."""
    return f"{Decimal(repr(usd)).normalize():f}USD/h"


def format_usd_per_gb(usd: float) -> str:
    """Return the exact text of a price; ``parse_usd_per_gb`` parses it to the same value."""
    return f"{Decimal(repr(usd)).normalize():f}USD/GB"


def _schema(units: Iterable[str], what: str, example: str) -> dict[str, Any]:
    """Return the JSON schema of a text with a number and one of ``units``. Editors show its error message."""
    return {
        "title": what.removeprefix("a "),
        "type": "string",
        "maxLength": _MAX_CHARACTERS,
        "pattern": rf"^\s*\+?[0-9]+(\.[0-9]+)?\s*({'|'.join(map(re.escape, units))})\s*$",
        "errorMessage": f"Write {what} like {example}.",
    }


def _annotated(parse: Any, write: Any, schema: dict[str, Any]) -> Any:
    return BeforeValidator(parse), PlainSerializer(write, return_type=str), WithJsonSchema(schema)


DURATION_SCHEMA = _schema(_DURATION_NS, *_DURATION)
_RATE_SCHEMA = {"anyOf": [{"const": UNLIMITED}, _schema(_RATE_BPS, *_RATE)]}
SIZE_SCHEMA = _schema(_SIZE_BYTES, *_SIZE)
_BYTES_PER_SECOND_SCHEMA = {"title": "bytes per second", "type": "string", "examples": ["12GB/s"]}
_FRACTION_SCHEMA = _schema(["%"], *_FRACTION)
_GPU_PRICE_SCHEMA = _schema(_GPU_PRICE_USD, *_GPU_PRICE)
_EGRESS_PRICE_SCHEMA = _schema(_EGRESS_PRICE_USD, *_EGRESS_PRICE)

DurationNs = Annotated[int, *_annotated(parse_duration_ns, format_duration, DURATION_SCHEMA)]
RateBps = Annotated[int | None, *_annotated(parse_rate_bps, format_rate, _RATE_SCHEMA)]
SizeBytes = Annotated[int, *_annotated(parse_size_bytes, format_size, SIZE_SCHEMA)]
BytesPerSecond = Annotated[int, *_annotated(parse_bytes_per_s, format_bytes_per_s, _BYTES_PER_SECOND_SCHEMA)]
Fraction = Annotated[float, *_annotated(parse_fraction, format_fraction, _FRACTION_SCHEMA)]
UsdPerGpuHour = Annotated[float, *_annotated(parse_usd_per_gpu_hour, format_usd_per_gpu_hour, _GPU_PRICE_SCHEMA)]
UsdPerGB = Annotated[float, *_annotated(parse_usd_per_gb, format_usd_per_gb, _EGRESS_PRICE_SCHEMA)]
