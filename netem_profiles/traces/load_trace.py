"""Load the traces that a topology names, from their files or from texts that are known already."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from wanbed.ground.units import format_duration
from wanbed.netem_profiles.traces.csv_trace import csv_trace
from wanbed.netem_profiles.traces.mahimahi_trace import mahimahi_trace
from wanbed.netem_profiles.traces.offered_trace import offered_trace
from wanbed.netem_profiles.traces.trace_text import checked_text, read_trace_text
from wanbed.testbed.network.links.condition_trace import ConditionTrace
from wanbed.testbed.network.links.link_spec import TraceSpec
from wanbed.testbed.network.topology_spec import TopologySpec


def named_traces(spec: TopologySpec) -> Iterator[TraceSpec]:
    """Yield every trace that a topology names."""
    for link in (spec.wan, *spec.links):
        if link is not None and link.trace is not None:
            yield link.trace


def trace_text(spec: TraceSpec, texts: Mapping[str, str], directory: Path) -> str:
    """Return the text of a trace: of ``texts``, by its path as written, or of its file below ``directory``.

    Raise LocatedError, one line with file and line.
    """
    text = texts.get(spec.file)
    if text is None:
        return read_trace_text(directory / spec.file)
    return checked_text(text.encode(), _file(spec, texts, directory))


def load_trace(spec: TraceSpec, text: str, texts: Mapping[str, str], directory: Path) -> ConditionTrace:
    """Return the trace in its text, which ``trace_text`` gives. Raise LocatedError, one line with file and line."""
    file = _file(spec, texts, directory)
    if spec.mahimahi is not None:
        return mahimahi_trace(text, file, f"{spec.file} (Mahimahi, {format_duration(spec.window)})", spec.window)
    return csv_trace(text, file, spec.file)


def load_offered_trace(path: str, texts: Mapping[str, str], directory: Path) -> tuple[str, ConditionTrace]:
    """Return the text of what a flow offers over time, and its rates; ``path`` is as written.

    Raise LocatedError, one line with file and line.
    """
    spec = TraceSpec(csv=path)
    text = trace_text(spec, texts, directory)
    return text, offered_trace(text, _file(spec, texts, directory), path)


def _file(spec: TraceSpec, texts: Mapping[str, str], directory: Path) -> str:
    """Return how messages name a trace."""
    return f"traces.{spec.file}" if spec.file in texts else str(directory / spec.file)
