"""Read from a run's manifest which trunks several machines divided among them, and say what that means."""

from collections.abc import Mapping
from typing import Any

from wanbed.results.text.number_text import list_text


def divided_trunks_text(manifest: Mapping[str, Any]) -> str | None:
    """Return the sentence that marks a run over machines with divided trunks, None for any other run."""
    of_points: Mapping[str, Mapping[str, int]] = manifest.get("trunk_split") or {}
    machines = {trunk: count for trunks in of_points.values() for trunk, count in trunks.items()}
    if not machines:
        return None
    trunks = list_text([f"{trunk} (by {count})" for trunk, count in machines.items()])
    return (
        f"Trunks were divided equally among the machines that send into them: {trunks}. No machine gets what others "
        "leave, so that transfers that are not simultaneous are slower than on a trunk that is shared."
    )
