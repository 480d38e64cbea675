import pytest

from wanbed.runner.trainings.program.on_hosts.first_cause import first_cause

CAUSE = "rank 1 on west-0 ended with status 1: RuntimeError: my bug"
GLOO = "rank 0 on east-0 ended with status 1: RuntimeError: [pair.cc:553] Connection closed by peer [10.1.1.2]:55973"


@pytest.mark.parametrize(
    "consequence",
    [
        GLOO,
        "rank 2 on south-0 ended with status 1: ConnectionResetError: [Errno 104] Connection reset by peer",
        "rank 2 on south-0 ended with status 1: torch.distributed.DistBackendError: NCCL error: remote process exited",
        "torchrun on east-0 ended with status 1: torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
        "rank 0 on east-0 was ended by SIGABRT",
        "rank 0 on east-0 ended with status 1: torch.distributed.DistStoreError: wait timeout after 300000ms",
    ],
)
def test_a_rank_that_only_misses_another_one_is_not_the_cause(consequence: str) -> None:
    assert first_cause([consequence, CAUSE]) == CAUSE


def test_of_several_causes_and_of_none_the_first_is_reported() -> None:
    other = CAUSE.replace("1", "2")
    assert first_cause([other, CAUSE]) == other
    assert first_cause([GLOO, GLOO.replace("0", "3")]) == GLOO
    assert first_cause([]) is None
