"""What of a rank's graph may begin, and when it is complete."""

from wanbed.workloads.trace_replay.replayed_trace import RankGraph, RankProgress, TraceNode, WorkKind

GPU, CPU, SEND, RECEIVE, NOTHING = WorkKind.GPU, WorkKind.CPU, WorkKind.SEND, WorkKind.RECEIVE, WorkKind.NOTHING


def progress_of(*nodes: TraceNode) -> RankProgress:
    return RankProgress(RankGraph(nodes))


def test_the_first_ready_node_of_a_kind_comes_first() -> None:
    progress = progress_of(TraceNode(GPU), TraceNode(GPU), TraceNode(CPU), TraceNode(GPU, after=(0,)))
    assert [progress.next_of(GPU), progress.next_of(GPU), progress.next_of(GPU)] == [0, 1, None]
    assert progress.next_of(CPU) == 2
    progress.ended(0)
    assert progress.next_of(GPU) == 3


def test_a_node_waits_for_all_that_it_follows() -> None:
    progress = progress_of(TraceNode(GPU), TraceNode(CPU), TraceNode(SEND, after=(0, 1)))
    progress.ended(0)
    assert progress.next_of(SEND) is None
    progress.ended(1)
    assert progress.next_of(SEND) == 2
    assert not progress.complete
    progress.ended(2)
    assert progress.complete


def test_a_receive_ends_when_it_is_posted_and_its_message_is_there() -> None:
    nodes = TraceNode(RECEIVE, peer=1, number=0), TraceNode(GPU, after=(0,))
    posted = progress_of(*nodes)
    assert posted.next_of(GPU) is None
    posted.arrived(1, 0)
    assert posted.next_of(GPU) == 1
    late = progress_of(TraceNode(GPU), TraceNode(RECEIVE, after=(0,), peer=1, number=0), TraceNode(CPU, after=(1,)))
    late.arrived(1, 0)
    assert late.next_of(CPU) is None
    late.ended(0)
    assert late.next_of(CPU) == 2


def test_nothing_takes_no_time() -> None:
    progress = progress_of(TraceNode(NOTHING), TraceNode(NOTHING, after=(0,)), TraceNode(GPU, after=(1,)))
    assert progress.next_of(GPU) == 2
    assert progress.left == 1
