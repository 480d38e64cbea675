"""Draw values that no field expects: other types, numbers at the ends of what fits, and texts that do harm if shown."""

from random import Random
from typing import Any

ESCAPES = ("\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\u202egnp.exe", "\u2066west\u2069", "a\rb", "bell\x07", "\x9b2J")
"""Names that change what a terminal or a page shows around them."""

TEXTS = (
    *ESCAPES,
    *("", " ", "nonsense", "a\nb", "\0", "\u2028", "\ufeff", "\ud800", "é", "x" * 100_000, "אב"),
    *("../../etc/passwd", "/dev/zero", "=1+1", "<script>alert(1)</script>", "{0}", "{name}", "%s%n", "$HOME", "[red]"),
    *("1:30", "1_0", "0x1F", "010", "yes", "no", "on", "1e3", "NaN", "inf", "null", "~", "2001-01-01", "١٢"),
    *("-1ms", "1e9s", "0ms", "1 day", "9" * 400 + "Gbit", "0bit", "101%", "-0%", "1e3", "unlimited", "auto"),
)
NUMBERS = (
    *(0, -1, 1, 2**31, 2**32, 2**53 + 1, 2**63, 2**64, 10**30, 10**400),
    *(-0.0, 0.5, 1e-320, 1e308, -1e308, float("nan"), float("inf"), float("-inf")),
)
OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], {"nonsense": 1}, [None], [1, "a"], list(range(2000)))


def deep(levels: int) -> Any:
    """Return lists in each other."""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def wrong_value(draw: Random) -> Any:
    """Return a value of any type."""
    values = draw.choice((TEXTS, NUMBERS, OTHERS))
    return draw.choice((*values, deep(draw.choice((10, 45, 200)))))
