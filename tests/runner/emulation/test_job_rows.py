from pathlib import Path

import pytest

from tests.support.runner.two_jobs import two_jobs
from wanbed.results.records.schema import LinkSample
from wanbed.results.records.trial_columns import TrialCounters
from wanbed.results.records.trial_tables import LINK_TABLE, TCP_TABLE
from wanbed.runner.emulation.job_rows import rows_of_job
from wanbed.runner.planner.experiment_file import parse_experiment

(POINT,) = parse_experiment(two_jobs(), "file", Path()).points()
OURS = {"east-0", "east-1", "west-0", "west-1"}


def row(scope: str, source: str, destination: str, wire_bytes: int, packets: int | None = 1) -> LinkSample:
    return LinkSample(5, scope, source, destination, wire_bytes, packets, 0, 0)


def test_a_job_keeps_its_node_pairs_and_links_are_their_sum() -> None:
    rows = [
        row("link", "east", "west", 100, 10),
        row("node_pair", "east-0", "west-0", 30, 3),
        row("node_pair", "east-1", "west-1", 20, 2),
        row("node_pair", "east-2", "west-2", 50, 5),
        row("link", "west", "east", 40, 4),
    ]
    kept = rows_of_job({LINK_TABLE: rows}, OURS, POINT.topology)[LINK_TABLE]
    assert list(kept) == [
        row("link", "east", "west", 50, 5),
        row("link", "west", "east", 0, 0),
        row("node_pair", "east-0", "west-0", 30, 3),
        row("node_pair", "east-1", "west-1", 20, 2),
    ]


def test_packets_that_were_not_counted_stay_unknown() -> None:
    rows = [row("link", "east", "west", 9, None), row("node_pair", "east-0", "west-0", 9, None)]
    link, _ = rows_of_job({LINK_TABLE: rows}, OURS, POINT.topology)[LINK_TABLE]
    assert link.packets is None


def test_columns_of_a_simulation_are_refused() -> None:
    columns = TrialCounters.__new__(TrialCounters)
    with pytest.raises(TypeError, match="samplers write rows"):
        rows_of_job({LINK_TABLE: columns, TCP_TABLE: ()}, OURS, POINT.topology)
