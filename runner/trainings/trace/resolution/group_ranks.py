"""Find which ranks the group of a collective has, from what a trace says of it.

The name of a group is text that each rank's file gives it. A trace says the ranks themselves in two ways: the name
lists them, like ``0,2``; or, in what torch records, a metadata node lists all groups of a rank with their ranks.
"""

import json
import re
from dataclasses import dataclass

from wanbed.runner.trainings.trace.resolution.chakra_folder import RankFile

_LISTED = re.compile(r"\[?\s*\d{1,6}(\s*,\s*\d{1,6})+\s*\]?")
_GROUPS_NODE = "process_group:init"
_JSON_LIST = re.compile(r"\[\s*\{.*\}\s*\]", re.DOTALL)


@dataclass(frozen=True)
class RankGroup:
    """A group of ranks. ``ranks`` is None if the trace does not say which; then those have it whose files name it.

    ``name`` is empty where ranks give the group different names, and for the group of all ranks.
    """

    name: str
    ranks: tuple[int, ...] | None


class GroupRanks:
    """The groups of ranks that the files of all ranks define."""

    def __init__(self, files: tuple[RankFile, ...]) -> None:
        self._everybody = tuple(range(len(files)))
        self._stated = [_stated(file, self._everybody) for file in files]

    def group(self, rank: int, name: str) -> RankGroup:
        """Return the group that a rank calls by that name."""
        if not name:
            return RankGroup("", self._everybody)
        stated = self._stated[rank].get(name)
        if stated is not None:
            known = [each for each in stated if each in self._everybody]
            alike = all(self._stated[each].get(name) == stated for each in known)
            return RankGroup(name if alike else "", stated)
        if _LISTED.fullmatch(name):
            return RankGroup(name, tuple(sorted({int(each) for each in re.findall(r"\d+", name)})))
        return RankGroup(name, None)


def _stated(file: RankFile, everybody: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Return the ranks of each group that the metadata of a file lists; an empty list stands for all ranks."""
    found: dict[str, tuple[int, ...]] = {}
    for node in file.nodes:
        listed = _JSON_LIST.search(node.input_values.replace('\\"', '"')) if _GROUPS_NODE in node.name else None
        try:
            groups = [] if listed is None else json.loads(listed[0])
        except ValueError:
            continue
        for group in groups:
            if isinstance(group, dict) and isinstance(group.get("ranks"), list):
                ranks = [each for each in group["ranks"] if type(each) is int]
                found[str(group.get("pg_name", ""))] = tuple(sorted({*ranks})) or everybody
    return found
