"""Choose where trials and candidates of plans are simulated: on this machine, or over a rack."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from wanbed.ground.exclusions import Exclusion, check_exclusions

if TYPE_CHECKING:
    from wanbed.results.records.written_spans import WrittenSpans
    from wanbed.runner.planner.pricing import Spread
    from wanbed.runner.runs.run_folder import Log
    from wanbed.runner.simulated_runs.simulated_run import Pool


def check_jobs(jobs: int | None, rack: str | None) -> None:
    """Raise InputError if both options are given."""
    check_exclusions(
        Exclusion(
            "--jobs",
            "with --rack as many trials run at a time as the rack has CPUs",
            when=rack is not None and jobs is not None,
            leave="--jobs or --rack",
        )
    )


@contextmanager
def simulation_pool(
    jobs: int | None, rack: str | None, log: "Log", written: "WrittenSpans | None" = None
) -> Iterator["Pool"]:
    """Yield the rack at that address, or ``jobs`` processes of this machine without one, as ``ProcessPool`` says."""
    if rack is None:
        from wanbed.runner.simulated_runs.process_pool import ProcessPool  # noqa: PLC0415 - spared by --dry-run and a refused file

        yield ProcessPool(jobs, written)
        return
    from wanbed.runner.rack_runs.simulations import rack_pool  # noqa: PLC0415 - Ray is an extra

    with rack_pool(rack, log) as pool:
        yield pool


@contextmanager
def plan_spread(rack: str | None, log: "Log") -> Iterator["Spread | None"]:
    """Yield what spreads the candidates of plans over the rack at that address, None without one."""
    if rack is None:
        yield None
        return
    from wanbed.runner.rack_runs.simulations import rack_spread  # noqa: PLC0415 - Ray is an extra

    with rack_spread(rack, log) as spread:
        yield spread
