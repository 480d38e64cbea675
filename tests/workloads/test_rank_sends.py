"""When a rank's sends keep it from computing."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.workloads.loopback_ranks import GPIPE, Start, make_configs, outcome
from wanbed.results.records.span_log import read_span_log
from wanbed.workloads.schedules.pipeline_shape import PipelineShape


@pytest.mark.parametrize(("pipelines", "stages"), [(1, 3), (2, 2)])
def test_a_rank_whose_sends_block_computes_nothing_until_each_has_ended(
    tmp_path: Path, start: Start, pipelines: int, stages: int
) -> None:
    shape = PipelineShape(stages, 4)
    configs = [
        replace(config, overlap=False) for config in make_configs(tmp_path, shape, pipelines=pipelines, schedule=GPIPE)
    ]
    assert [outcome(process) for process in [start(config) for config in configs]] == [(0, "")] * stages * pipelines
    for config in configs:
        spans = [span for span in read_span_log(Path(config.process.span_log)).spans if span.kind != "receive"]
        used = sorted((span.start_ns, span.end_ns) for span in spans)
        sends = [span for span in spans if span.kind == "send"]
        assert len(sends) == (2 if 0 < config.place.stage < stages - 1 else 1) * 4 * 2
        assert all(one[1] <= following[0] for one, following in pairwise(used))
