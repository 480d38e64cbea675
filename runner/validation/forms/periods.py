"""Check the simulator with closed forms of the period of training, each beside the makespan of one iteration.

A stage begins the next iteration once its own part of this one has ended. So the period is as short as the longest part
of any stage, where a makespan lasts from the first start to the last end. No transfer and no latency takes time here.
"""

from wanbed.runner.simulator.simulation import Simulate, Simulation
from wanbed.runner.validation.case import LawCheck, chain, simulated

MS = 1_000_000
_STAGES, _MICROBATCHES, _FORWARD_MS, _BACKWARD_MS = 4, 8, 20, 40
_BUSY_MS = _MICROBATCHES * (_FORWARD_MS + _BACKWARD_MS)
_ITERATIONS = 3


def _steady_ns(simulation: Simulation) -> tuple[int, int]:
    """Return the time between the ends of the last two iterations, and the makespan of the last."""
    (_, end_before_ns), (begin_ns, end_ns) = simulation.windows_ns[-2:]
    return end_ns - end_before_ns, end_ns - begin_ns


def _of_schedule(simulate: Simulate, schedule: str, virtual_stages: int = 1) -> tuple[int, int]:
    simulation = simulated(
        simulate,
        chain([0] * (_STAGES - 1), latency="0ms"),
        compute={"forward": f"{_FORWARD_MS}ms", "backward": f"{_BACKWARD_MS}ms"},
        training={"stages": _STAGES, "microbatches": _MICROBATCHES, "virtual_stages": virtual_stages},
        variant={"schedule": schedule},
        iterations=_ITERATIONS,
    )
    return _steady_ns(simulation)


def first_stage_begins_and_ends(simulate: Simulate) -> LawCheck:
    """Check 1F1B, whose first stage begins every iteration and ends it: nothing interlocks."""
    expected_ms = _BUSY_MS + (_STAGES - 1) * (_FORWARD_MS + _BACKWARD_MS)
    return LawCheck(
        "1F1B, its period and its makespan",
        "(M + S - 1)(f + b) both",
        (expected_ms * MS,) * 2,
        _of_schedule(simulate, "1f1b"),
    )


def split_backwards_fill_the_drain(simulate: Simulate) -> LawCheck:
    """Check ZB-H1 with f = b / 2 (Qi et al., ICLR 2024, section 2.3): its bubble is that of the last input parts.

    The weight parts of the first stage follow each input part at once, so that it begins and ends every iteration.
    """
    expected_ms = _BUSY_MS + (_STAGES - 1) * _FORWARD_MS
    return LawCheck(
        "ZB-H1, f = b / 2, its period and its makespan",
        "M (f + b) + (S - 1) f both",
        (expected_ms * MS,) * 2,
        _of_schedule(simulate, "zb-h1"),
    )


def iterations_interlock(simulate: Simulate) -> LawCheck:
    """Check ZB-2p with f = b / 2 (the same, section 2.2): every stage is busy from its first action to its last.

    Stage s begins s forwards after the first, and ends as many later; so do all its iterations.
    """
    return LawCheck(
        "ZB-2p, f = b / 2, its period and its makespan",
        "M (f + b), and (S - 1) f more",
        (_BUSY_MS * MS, (_BUSY_MS + (_STAGES - 1) * _FORWARD_MS) * MS),
        _of_schedule(simulate, "zb-2p"),
    )


def iterations_interlock_there_and_back(simulate: Simulate) -> LawCheck:
    """Check ZB-V with f = b / 2: the same with virtual stages of half a forward."""
    return LawCheck(
        "ZB-V, f = b / 2, its period and its makespan",
        "M (f + b), and (S - 1) f / 2 more",
        (_BUSY_MS * MS, (_BUSY_MS * 2 + (_STAGES - 1) * _FORWARD_MS) * MS // 2),
        _of_schedule(simulate, "zb-v", 2),
    )


def a_sum_is_hidden_behind_the_first_stage(simulate: Simulate) -> LawCheck:
    """Check 1F1B with replicas whose last stage alone sums gradients, in g, with b < g < b + f.

    The last stage ends its backwards b before the first one. Its next forward has an activation f after that: by then
    its sum is done, which ends an iteration but delays none.
    """
    stages, sum_ms = 2, 50
    simulation = simulated(
        simulate,
        {
            "datacenters": [{"name": name, "hosts": hosts} for name, hosts in (("east", 1), ("west", 1), ("far", 2))],
            # Two replicas in one datacenter pass on a part twice. All else crosses a WAN without latency.
            "intra": {"latency": f"{sum_ms // 2}ms", "rate": "unlimited"},
            "wan": {"latency": "0ms", "rate": "unlimited"},
        },
        compute={"forward": f"{_FORWARD_MS}ms", "backward": f"{_BACKWARD_MS}ms"},
        training={"stages": stages, "pipelines": 2, "microbatches": _MICROBATCHES},
        variant={"schedule": "1f1b", "placement": [["east", "far"], ["west", "far"]]},
        iterations=_ITERATIONS,
    )
    period_ms = (_MICROBATCHES + stages - 1) * (_FORWARD_MS + _BACKWARD_MS)
    return LawCheck(
        "1F1B, S = 2, a sum of 50 ms at the last stage, its period and its makespan",
        "(M + 1)(f + b), and g - b more",
        (period_ms * MS, (period_ms + sum_ms - _BACKWARD_MS) * MS),
        _steady_ns(simulation),
    )
