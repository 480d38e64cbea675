"""Check the simulator with closed forms of schedules whose stages hold several virtual stages."""

from wanbed.runner.simulator.simulation import Simulate
from wanbed.runner.validation.case import LawCheck, chain, iteration_ns, simulated

MS = 1_000_000
_STAGES, _FORWARD_MS, _BACKWARD_MS = 4, 20, 40


def _iteration_ns(simulate: Simulate, schedule: str, virtual_stages: int, microbatches: int, latency_ms: int) -> int:
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
        tuple(_iteration_ns(simulate, "interleaved-1f1b", each, microbatches, 0) for each in virtual_stages),
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
        (_iteration_ns(simulate, "zb-v", 2, 1, latency_ms),),
    )
