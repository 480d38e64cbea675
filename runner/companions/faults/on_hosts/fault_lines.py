"""Say in a line each what faults have done to a trial."""

from collections.abc import Iterator, Mapping
from typing import Any

from wanbed.results.reading.trial_faults import FAILED, SURVIVED, UNDISTURBED


def fault_lines(faults: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield a line for each time that faults ended the ranks, and one for each that came too late or met nobody."""
    if faults is None:
        return
    for each in faults["disturbances"]:
        what = " and ".join(each["faults"]) or "a rank"
        if faults["outcome"] == SURVIVED:
            known = each["time_to_detect_ns"]
            noticed = "did not notice" if known is None else f"knew after {_seconds(known)}"
            when = _seconds(each["at_ns"])
            back = each["time_to_recover_ns"]
            again = "" if back is None else f"; it joined them again after {_seconds(back)}"
            went_on = f"the rank that gathers {noticed}, and the others went on{again}"
            yield f"{what} failed at {when} of the trial, {went_on}"
            continue
        line = f"{what} failed at {_seconds(each['at_ns'])} of the trial, every rank knew {_after(each)}"
        if each["time_to_recover_ns"] is not None:
            line += (
                f", training began again after {_seconds(each['time_to_recover_ns'])}; finished iterations that were "
                f"lost: {each['iterations_lost']}"
            )
        yield line
    if faults["outcome"] == FAILED:
        done = faults.get("iterations_completed")
        known = "" if done is None else f" after {done} of {faults['iterations_planned']} iterations"
        yield f"the trial ended{known}: {faults['reason']}"
    for each in faults.get("injected", ()):
        if not each["ranks"]:
            yield f"{each['fault']} failed, where no rank was"
        elif faults["outcome"] == UNDISTURBED:
            yield f"{each['fault']} failed when its ranks had done all iterations"
    for name in faults.get("never_due", ()):
        yield f"{name} was to fail after the trial's end: it did not"


def _after(disturbance: Mapping[str, Any]) -> str:
    if disturbance["time_to_detect_ns"] is not None:
        return f"after {_seconds(disturbance['time_to_detect_ns'])}"
    return f"but {len(disturbance['unaware'])}, which were ended"


def _seconds(time_ns: int | None) -> str:
    return "an unknown time" if time_ns is None else f"{time_ns / 1e9:.3f} s"
