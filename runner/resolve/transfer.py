"""Describe what ranks of a variant send each other."""

from dataclasses import dataclass

from wanbed.runner.resolve.placement import Pair


@dataclass(frozen=True)
class Transfer:
    """A transfer between two places, in either direction. ``what`` names it in sentences: "an activation"."""

    what: str
    size_bytes: int
    pair: Pair
