"""Warn of trials in which ``connections: auto`` was limited to fewer connections than fill a node pair's cap."""

from results.reading.run import Run
from results.text.number_text import count_text, percent_text


def cut_warnings(run: Run) -> list[str]:
    """Return one warning for each variant that is limited at any node pair, with its worst one; empty if none is."""
    found: dict[str, list[tuple[float, str, str, int]]] = {}
    for trial in run.trials:
        for one, other, wanted, carried in trial.facts.get("connections_cut") or ():
            found.setdefault(trial.variant, []).append((float(carried), str(one), str(other), int(wanted)))
    return [_line(variant, cuts) for variant, cuts in found.items()]


def _line(variant: str, cuts: list[tuple[float, str, str, int]]) -> str:
    carried, one, other, wanted = min(cuts)
    pairs = len({(one, other) for _, one, other, _ in cuts})
    return (
        f"connections: auto of {variant} reached the limit of connections between two hosts, in "
        f"{count_text(pairs, 'node pair')}: {wanted} would fill the cap between {one} and {other}; the allowed "
        f"connections carry at most {percent_text(carried)} of it."
    )
