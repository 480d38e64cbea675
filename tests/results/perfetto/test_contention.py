from tests.results.perfetto.spans_on_paper import send, spans
from wanbed.results.perfetto.contention import contention_of

FACTS = {"devices": [{"host": host, "gpu": 0, "device": "GPU-1"} for host in ("e0", "w0")]}


def test_computation_that_shares_a_device_is_contended_and_nothing_else_is() -> None:
    of = spans(
        {"host": "e0", "start_ns": 0, "end_ns": 100},
        {"host": "w0", "kind": "backward", "start_ns": 60, "end_ns": 200},
        {"host": "w0", "kind": "prefill", "start_ns": 300, "end_ns": 400},
        {"host": "e0", "kind": "optimizer", "start_ns": 310, "end_ns": 320},
        {"host": "elsewhere", "start_ns": 0, "end_ns": 400},
        send(0, 0, 400, host="e0"),
    )
    assert contention_of(of, FACTS).tolist() == [40, 40, 10, 10, 0, 0]


def test_a_trial_without_devices_has_no_contention() -> None:
    of = spans({"host": "e0"}, {"host": "w0"})
    assert contention_of(of, {}).tolist() == [0, 0]
    assert contention_of(spans(), FACTS).tolist() == []
