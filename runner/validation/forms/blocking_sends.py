"""Check sends that block in small cases with a closed form, as ``wanbed.runner.validation.closed_forms`` does.

A transfer keeps its sender for x = A / W, so each forward of a stage that sends takes f + x of its time, and each
backward b + x.
"""

from wanbed.runner.simulator.simulation import Simulate
from wanbed.runner.validation.case import LawCheck, chain, iteration_ns, simulated

MS = 1_000_000
_FORWARD_MS, _BACKWARD_MS, _TRANSFER_MS, _LATENCY_MS = 10, 20, 100, 30


def _iteration_ns(simulate: Simulate, schedule: str, stages: int, microbatches: int) -> int:
    simulation = simulated(
        simulate,
        chain([_LATENCY_MS * MS] * (stages - 1), node_pair_rate="1Gbit"),
        compute={
            "forward": f"{_FORWARD_MS}ms",
            "backward": f"{_BACKWARD_MS}ms",
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
    steps, once_ms = microbatches + stages - 2, _FORWARD_MS + _BACKWARD_MS
    expected_ms = steps * (once_ms + 2 * _TRANSFER_MS) + once_ms + 2 * (stages - 1) * _LATENCY_MS
    return LawCheck(
        "GPipe, S = 4, M = 8, sends of x = A / W block",
        "(M + S - 1)(f + b) + 2(M + S - 2)x + 2(S - 1)c",
        (expected_ms * MS,),
        (_iteration_ns(simulate, "gpipe", stages, microbatches),),
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
    step_ms = _FORWARD_MS + _BACKWARD_MS + _TRANSFER_MS
    return LawCheck(
        "1F1B, S = 2, M = 8, sends of x = A / W block",
        "(M + 1)(f + b + x) + M c",
        (((microbatches + 1) * step_ms + microbatches * _LATENCY_MS) * MS,),
        (_iteration_ns(simulate, "1f1b", 2, microbatches),),
    )
