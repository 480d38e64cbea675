"""What a rank is stays when it is killed, what it was doing does not; who does not start what is ready is found."""

from dataclasses import replace

from tests.support.runner.small_experiment import sweep_point
from wanbed.runner.simulator.rings.ring_all_reduce import Done
from wanbed.runner.simulator.simulated_ranks import RankState, culprit_of, simulated_ranks
from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.schedules.action import ActionKind
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.schedule import create_schedule


class Sums:
    """Of which only the second stage has any."""

    def has_gradients(self, stage: int) -> bool:
        return stage == 1

    def join(self, stage: int, iteration: int, pipeline: int, now_ns: int, done: Done) -> None:
        raise AssertionError("a rank that only begins sums nothing")


def test_a_rank_that_begins_again_is_the_same_and_does_nothing_yet() -> None:
    what = RankState(1, 2, 3, 4, 5, costs_ns=[7], numbers=[8], optimizer_ns=9)
    under_way = replace(what, iteration=6, busy=True, held=True, schedule=object(), unsent=2, sent_ns=3, updates=True)
    assert replace(under_way, done=True, lost=True, unended=1).begun_again(4) == replace(what, iteration=4)


def test_ranks_are_those_of_the_given_pipelines_one_pipeline_after_the_other() -> None:
    point = sweep_point(
        {
            "topology": {
                "datacenters": [{"name": "east", "hosts": 8}, {"name": "west", "hosts": 8}],
                "wan": {"latency": "1ms"},
            },
            "model": {"hidden": 64, "context": 64},
            "compute": {"forward": ["1ms", "2ms"], "backward": ["3ms", "4ms"], "optimizer": "5ms", "gradient": "64KiB"},
            "training": {"stages": 2, "pipelines": 8, "microbatches": 2, "iterations": 1, "warmup": 0},
            "variants": [
                {
                    "name": "any",
                    "schedule": "gpipe",
                    "transport": {
                        "sharing": "temporal",
                        "pipelines_per_cell": 4,
                        "all_reduce_overlap": True,
                        "bucket": "32KiB",
                    },
                }
            ],
        }
    )
    ranks = simulated_ranks(point.variants[0], [2, 5], Sums())
    assert [(each.number, each.rank, each.pipeline, each.stage, each.mate) for each in ranks] == [
        *((0, 4, 2, 0, 2), (1, 5, 2, 1, 2)),
        *((2, 10, 5, 0, 1), (3, 11, 5, 1, 1)),
    ]
    assert [each.costs_ns[list(ActionKind).index(ActionKind.FORWARD)] for each in ranks] == [10**6, 2 * 10**6] * 2
    assert {each.optimizer_ns for each in ranks} == {5 * 10**6}
    assert [each.buckets_bytes for each in ranks] == [(), (32 * 1024, 32 * 1024)] * 2


def test_the_culprit_is_the_first_rank_that_does_not_start_what_is_ready() -> None:
    schedule = create_schedule("wanbed.workloads.schedules.gpipe:GPipe", PipelineShape(2, 1), {})
    first, second = (RankState(stage, stage, 0, stage, 0, schedule=schedule) for stage in range(2))
    # Nothing has reached the second stage, and the first may begin.
    assert culprit_of([second, first]) is first
    assert culprit_of([second]) is None
    schedule.arrived(1, Message(MessageKind.ACTIVATION, 0))
    assert culprit_of([second, first]) is second
    second.done = True
    assert culprit_of([second, first]) is first
    first.schedule = None
    assert culprit_of([second, first]) is None
