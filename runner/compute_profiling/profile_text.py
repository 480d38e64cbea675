"""Summarize a measured profile for display: each stage or prompt, its achieved FLOP/s, and the unsteady figures."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wanbed.results.text import clock_text, count_text
from wanbed.workloads.bubbletea.profile_files import MeasuredPrefill
from wanbed.workloads.inference.inference_model import InferenceModel
from wanbed.workloads.profiles.compute_profile import Clocks, MeasuredProfile, MeasuredTime


@dataclass(frozen=True)
class ProfileRow:
    """One stage, prompt or chunk: the time of each action, the FLOP/s, and their fraction of the ceiling's."""

    what: str
    times: Mapping[str, MeasuredTime]
    flops_per_s: float
    of_ceiling: float

    @property
    def clock_hz(self) -> int | None:
        """The device's median clock while this was measured, None if it is unknown."""
        return next(iter(self.times.values())).clock_hz

    def document(self) -> dict[str, Any]:
        """Return the row in plain JSON types."""
        return {
            "what": self.what,
            "times": {name: {"median_ns": time.median_ns, "spread": time.spread} for name, time in self.times.items()},
            "achieved_flops_per_s": self.flops_per_s,
            "of_ceiling": self.of_ceiling,
            "clock_hz": self.clock_hz,
        }


def rows_of(measured: MeasuredProfile | MeasuredPrefill) -> list[ProfileRow]:
    """Return a row for each measured stage, prompt or chunk, in the profile's order; [] without conditions."""
    if measured.conditions is None:
        return []
    ceiling = measured.conditions.ceiling.flops_per_s
    rows = _stages(measured) if isinstance(measured, MeasuredProfile) else _prompts(measured)
    return [ProfileRow(what, times, flops_per_s, flops_per_s / ceiling) for what, times, flops_per_s in rows]


def unsteady(rows: Sequence[ProfileRow]) -> list[tuple[ProfileRow, str, MeasuredTime]]:
    """Return each time whose spread is above the limit for a steady one, with its row and action."""
    return [(row, name, time) for row in rows for name, time in row.times.items() if not time.steady]


def clocks_text(clocks: Clocks) -> str:
    """Return the clocks of a measurement in one line."""
    return (
        f"median {clock_text(clocks.median_hz)}, lowest {clock_text(clocks.lowest_hz)}, "
        f"{count_text(clocks.samples, 'sample')}"
    )


_Rows = Iterator[tuple[str, Mapping[str, MeasuredTime], float]]


def _stages(measured: MeasuredProfile) -> _Rows:
    for model in measured.models:
        for stage in model.stages:
            layers = f"{stage.layers} layer{'s' if stage.layers > 1 else ''}"
            what = f"H {model.model.hidden}, L {model.model.context}: {stage.position} stage, {layers}"
            yield what, dict(stage.times()), stage.flops_per_s


def _prompts(measured: MeasuredPrefill) -> _Rows:
    layers = measured.model
    # Only the layers' operations count, so vocabulary and bytes per element do not matter.
    model = InferenceModel(**{**layers.model_dump(), "name": measured.title, "vocabulary": 1, "bytes_per_element": 1})
    for prompt in measured.prompts:
        if prompt.measured is not None:
            flops = model.flops(layers.layers, prompt.tokens, 0)
            yield f"prompt of {prompt.tokens} tokens", {"prefill": prompt.measured}, flops / prompt.time_ns * 1e9
    for chunk in measured.chunks:
        if chunk.measured is not None:
            flops = model.flops(layers.layers, chunk.tokens, chunk.prior_tokens)
            what = f"chunk of {chunk.tokens} tokens after {chunk.prior_tokens}"
            yield what, {"prefill": chunk.measured}, flops / chunk.time_ns * 1e9
