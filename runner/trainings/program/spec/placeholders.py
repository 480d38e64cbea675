"""Find and fill the placeholders in the words of a program's command, like ``{rank}``.

A placeholder is a lower-case name in braces. ``{{rank}}`` stands for the text ``{rank}``; braces around anything else,
as in JSON or a Python program, stay as they are.
"""

import re
from collections.abc import Mapping

from wanbed.ground.nearest_name import did_you_mean

OF_A_RANK = ("rank", "local_rank")
"""Placeholders that are known only where wanbed itself starts each process."""
PLACEHOLDERS = (
    "python",
    "folder",
    "host",
    "datacenter",
    "hosts",
    "host_index",
    *OF_A_RANK,
    "world_size",
    "local_world_size",
    "rendezvous_host",
    "rendezvous_address",
    "rendezvous_port",
)
_BRACED = re.compile(r"\{\{([a-z_]+)\}\}|\{([a-z_]+)\}")


def check_placeholders(word: str) -> None:
    """Raise ValueError for a name in braces that is no placeholder."""
    for escaped, name in _BRACED.findall(word):
        if not escaped and name not in PLACEHOLDERS:
            remedy = did_you_mean(name, PLACEHOLDERS, f"known here: {', '.join(PLACEHOLDERS)}")
            raise ValueError(f"{{{name}}} is no placeholder: {remedy}, or write {{{{{name}}}}} for the text itself")


def placeholders_in(word: str) -> set[str]:
    """Return the names of the placeholders of a word."""
    return {name for escaped, name in _BRACED.findall(word) if not escaped}


def filled(word: str, values: Mapping[str, str]) -> str:
    """Return the word with ``values`` in place of its placeholders. Raise KeyError for one that has no value."""
    return _BRACED.sub(lambda found: f"{{{found[1]}}}" if found[1] else values[found[2]], word)
