"""Check pipelines in small cases with a closed form: periods, virtual stages, and sends that block.

A stage begins the next iteration once its own part of this one has ended. So the period is as short as the longest part
of any stage, where the makespan of an iteration lasts from the first start to the last end.

Where sends block, a transfer keeps its sender for x = A / W, so each forward of a stage that sends takes f + x of its
time, and each backward b + x. In all other cases a transfer takes its latency at most.
"""

from wanbed.runner.simulator.simulation import Simulate, Simulation
from wanbed.runner.validation.case import ClosedForm, LawCheck, chain, iteration_ns, simulated

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


def _virtual_stages_ns(
    simulate: Simulate, schedule: str, virtual_stages: int, microbatches: int, latency_ms: int
) -> int:
    simulation = simulated(
        simulate,
        chain([latency_ms * MS] * (_STAGES - 1), latency="0ms"),
        compute={"forward": f"{_FORWARD_MS}ms", "backward": f"{_BACKWARD_MS}ms"},
        training={"stages": _STAGES, "microbatches": microbatches, "virtual_stages": virtual_stages},
        variant={"schedule": schedule},
    )
    return iteration_ns(simulation)


def interleaving(simulate: Simulate) -> LawCheck:
    """Check interleaved 1F1B without latency (Narayanan et al., SC 2021, section 2.2).

    The last stage begins S - 1 forwards of one virtual stage later than the first, and S - 1 backwards of one remain
    after its last. In between it is never idle. Each of these takes 1/V of a stage's.
    """
    microbatches, whole_ms = 8, _FORWARD_MS + _BACKWARD_MS
    virtual_stages = (2, 4)
    return LawCheck(
        "Interleaved 1F1B, 2 and 4 virtual stages",
        "(M + (S - 1) / V)(f + b)",
        tuple((microbatches * whole_ms + (_STAGES - 1) * whole_ms // each) * MS for each in virtual_stages),
        tuple(_virtual_stages_ns(simulate, "interleaved-1f1b", each, microbatches, 0) for each in virtual_stages),
    )


def there_and_back(simulate: Simulate) -> LawCheck:
    """Check ZB-V with one microbatch, which goes to the last stage and back forwards, and again backwards.

    Forward, input part and weight part of one of 2S virtual stages take p = f/2 = b/4. The microbatch passes 2S of them
    each way and crosses 2(S - 1) links each way, for the turn is on the last stage. Two weight parts are in the way: at
    the turn, which has the second virtual stage's before the first one's input part, and at the very end.
    """
    part_ms, latency_ms = _FORWARD_MS // 2, 30
    expected_ms = (4 * _STAGES + 2) * part_ms + 4 * (_STAGES - 1) * latency_ms
    return LawCheck(
        "ZB-V, 1 microbatch",
        "(4 S + 2) f / 2 + 4 (S - 1) c",
        (expected_ms * MS,),
        (_virtual_stages_ns(simulate, "zb-v", 2, 1, latency_ms),),
    )


_SHORT_FORWARD_MS, _SHORT_BACKWARD_MS, _TRANSFER_MS, _LATENCY_MS = 10, 20, 100, 30


def _blocking_ns(simulate: Simulate, schedule: str, stages: int, microbatches: int) -> int:
    simulation = simulated(
        simulate,
        chain([_LATENCY_MS * MS] * (stages - 1), node_pair_rate="1Gbit"),
        compute={
            "forward": f"{_SHORT_FORWARD_MS}ms",
            "backward": f"{_SHORT_BACKWARD_MS}ms",
            "activation": f"{_TRANSFER_MS * 125_000}B",
        },
        training={"stages": stages, "microbatches": microbatches},
        variant={"schedule": schedule, "transport": {"overlap": False}},
    )
    return iteration_ns(simulation)


def blocking_gpipe(simulate: Simulate) -> LawCheck:
    """Check GPipe, whose first S - 1 stages each take f + x for a microbatch, and the last stage f.

    The last microbatch reaches the last stage after M + S - 2 steps of f + x and S - 1 latencies, and ends there after
    f. The backwards are the same with b, from the last stage to the first.
    """
    stages, microbatches = 4, 8
    steps, once_ms = microbatches + stages - 2, _SHORT_FORWARD_MS + _SHORT_BACKWARD_MS
    expected_ms = steps * (once_ms + 2 * _TRANSFER_MS) + once_ms + 2 * (stages - 1) * _LATENCY_MS
    return LawCheck(
        "GPipe, S = 4, M = 8, sends of x = A / W block",
        "(M + S - 1)(f + b) + 2(M + S - 2)x + 2(S - 1)c",
        (expected_ms * MS,),
        (_blocking_ns(simulate, "gpipe", stages, microbatches),),
    )


def blocking_one_forward_one_backward(simulate: Simulate) -> LawCheck:
    """Check 1F1B over two stages, for an even M. Let u = f + b + x.

    Stage 0 sends two activations. The last stage runs forward and backward of each and sends its gradient, for u each.
    So the first gradient is at stage 0 at t = f + x + c + u + c, and the second one at t + u: just when stage 0 has run
    the first backward and the third forward, and sent that. The third activation leaves at t + u, and its gradient is
    back after c + u + c, at t + 2u + 2c. Stage 0 has run and sent everything else by t + 2u. So two microbatches take
    2u + 2c. The last two have no forwards between them: the last backward begins u after the one before it.
    Together: t + (M / 2 - 1)(2u + 2c) + u + b.
    """
    microbatches = 8
    step_ms = _SHORT_FORWARD_MS + _SHORT_BACKWARD_MS + _TRANSFER_MS
    return LawCheck(
        "1F1B, S = 2, M = 8, sends of x = A / W block",
        "(M + 1)(f + b + x) + M c",
        (((microbatches + 1) * step_ms + microbatches * _LATENCY_MS) * MS,),
        (_blocking_ns(simulate, "1f1b", 2, microbatches),),
    )


PIPELINES: tuple[ClosedForm, ...] = (
    blocking_gpipe,
    blocking_one_forward_one_backward,
    interleaving,
    there_and_back,
    first_stage_begins_and_ends,
    split_backwards_fill_the_drain,
    iterations_interlock,
    iterations_interlock_there_and_back,
    a_sum_is_hidden_behind_the_first_stage,
)
