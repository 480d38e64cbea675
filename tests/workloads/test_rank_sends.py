"""When a rank's sends and receives keep it from computing."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.workloads.loopback_ranks import GPIPE, ONE_FORWARD_ONE_BACKWARD, Start, make_configs, outcome
from wanbed.results.records.span_log import read_span_log
from wanbed.workloads.schedules.pipeline_shape import PipelineShape

VARUNA = "wanbed.workloads.schedules.varuna:Varuna"


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


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("schedule", [GPIPE, ONE_FORWARD_ONE_BACKWARD])
@pytest.mark.parametrize("ranks", [(1, 3), (2, 2)])
def test_where_receives_block_a_message_comes_when_its_receiver_has_nothing_to_compute_before(
    tmp_path: Path, start: Start, ranks: tuple[int, int], schedule: str, overlap: bool
) -> None:
    pipelines, stages = ranks
    shape = PipelineShape(stages, 4)
    options = {} if schedule is GPIPE else {"warmup_depth": 1}
    configs = [
        replace(
            config,
            overlap=overlap,
            links=replace(config.links, on_request=True),
            schedule=replace(config.schedule, options=options),
        )
        for config in make_configs(tmp_path, shape, pipelines=pipelines, schedule=schedule)
    ]
    assert [outcome(process) for process in [start(config) for config in configs]] == [(0, "")] * stages * pipelines
    for config in configs:
        spans = [span for span in read_span_log(Path(config.process.span_log)).spans if span.kind != "send"]
        used = sorted((span.start_ns, span.end_ns) for span in spans)
        receives = [span for span in spans if span.kind == "receive"]
        assert len(receives) == (2 if 0 < config.place.stage < stages - 1 else 1) * 4 * 2
        assert all(one[1] <= following[0] for one, following in pairwise(used))


def test_a_rank_whose_schedule_has_no_fixed_order_says_that_it_cannot_ask(tmp_path: Path, start: Start) -> None:
    configs = [
        replace(config, links=replace(config.links, on_request=True))
        for config in make_configs(tmp_path, PipelineShape(2, 2), schedule=VARUNA)
    ]
    outcomes = [outcome(process) for process in [start(config) for config in configs]]
    assert [status for status, _ in outcomes] == [1, 1]
    assert any("Varuna has no fixed order, which says what a rank waits for" in line for _, line in outcomes)
