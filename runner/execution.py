"""Run an experiment on the engine that it names."""

from pathlib import Path

from wanbed.runner.runs.run_request import RunRequest


def execute(request: RunRequest) -> Path:
    """Run the missing trials of the requested run, and return its folder.

    Raise InputError for what cannot run, MissingError for what the machine lacks, SimulationError or TrialError for a
    trial that failed, InsideError for one in virtual time, and MachineLostError for a machine of a rack that left.
    """
    # An engine is loaded when it is asked for: a machine that only simulates lacks Mininet, and most lack Ray.
    request.check()
    if request.simulates:
        from wanbed.runner.rack_runs.pools import simulation_pool
        from wanbed.runner.simulated_runs.simulated_run import simulated_run

        address = None if request.rack is None else request.rack.address
        with simulation_pool(request.jobs, address, request.log, request.written) as pool:
            return simulated_run(
                request.experiment,
                request.runs,
                resume=request.resume,
                pool=pool,
                log=request.log,
                stream=request.stream,
            )
    if request.rack is not None:
        from wanbed.runner.rack_runs.rack_run import rack_run

        return rack_run(request, request.rack)
    from wanbed.runner.emulation.emulated_run import emulated_run

    return emulated_run(request)
