"""Run a program of the user's as one trial."""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import file_digest
from pathlib import Path
from typing import Any

from wanbed.results.records.span_log import SpanLogContents
from wanbed.runner.emulation.rank_configs import FIRST_PORT
from wanbed.runner.emulation.running_trial import Ended, RunningTrial
from wanbed.runner.runs.faults import TrialError
from wanbed.runner.trainings.program.on_hosts.outcome import measured_ns, profiled_iterations, read_ranks, unmarked
from wanbed.runner.trainings.program.on_hosts.placeholder_values import ProgramPlaces
from wanbed.runner.trainings.program.on_hosts.process_configs import ProgramSetting
from wanbed.runner.trainings.program.on_hosts.running import ProgramRun
from wanbed.runner.trainings.program.resolution.resolved_program import ResolvedProgram
from wanbed.runner.trainings.program.spec.placeholders import filled, placeholders_in
from wanbed.testbed.gpus.gpu_assignment import VISIBLE_DEVICES
from wanbed.testbed.rack.driver.files.written_files import Written
from wanbed.testbed.rack.machine_handle import MachineLostError
from wanbed.testbed.running_testbed import RunningTestbed

_STREAMS = ("stdout", "stderr")
_WRITTEN = "written"
"""The folder, in a trial's output, of what processes wrote on the machines of a rack."""


def run_program(
    trial: RunningTrial, program: ResolvedProgram, begin: Callable[[], None], look: Callable[[], None]
) -> Ended:
    """Run a variant's program until its iterations are done. What it printed is in the trial's folder.

    ``begin`` is called just before its ranks are started, ``look`` several times a second. What it printed, and what
    processes on a rack wrote, are the outputs; loading the program is no part of what is measured. If it fails, what
    it printed is copied to the folder of failed trials. Raise TrialError, one line with the process that failed and
    what it printed last.
    """
    testbed, variant, setting = trial.testbed, trial.variant, trial.setting
    hidden = {VISIBLE_DEVICES: ""} if testbed.gpus is None and setting.device == "cpu" else {}
    homes = {host.name: testbed.home(host.name) for host in testbed.topology.hosts}
    places = ProgramPlaces(program, variant.placement, setting.addresses, FIRST_PORT, homes)
    shared = ProgramSetting(
        places,
        setting.folder,
        setting.epoch_ns,
        setting.run_token,
        setting.parent_pid,
        hidden,
    )
    written = None
    run = ProgramRun(testbed, shared, begin, look)
    try:
        run.run()
        logs = read_ranks(run.span_logs, program, variant.name)
    except TrialError as fault:
        with suppress(MachineLostError):
            written = _written(testbed, setting.folder, program)
        kept = _kept(_outputs(setting.folder, written), trial.spec.failed)
        raise TrialError(f"{fault}{f' (what it printed: {kept})' if kept else ''}") from None
    written = _written(testbed, setting.folder, program)
    profiled = profiled_iterations(logs, program)
    facts = _facts(shared, logs, profiled)
    if written is not None:
        facts["program"]["written"] = written.document()
    outputs = _outputs(setting.folder, written)
    measured = measured_ns(logs, program, profiled)
    return Ended(logs, setting, arrivals=False, measured_ns=measured, outputs=outputs, facts=lambda _: facts)


def _written(testbed: RunningTestbed, folder: Path, program: ResolvedProgram) -> Written | None:
    return testbed.take_written(folder, _WRITTEN, program.spec.output_limit)


def _outputs(folder: Path, written: Written | None) -> dict[str, Path]:
    """Return the files of what processes printed, by name, without the empty ones, and those that they wrote."""
    found = sorted(path for stream in _STREAMS for path in folder.glob(f"*.{stream}"))
    printed = {path.name: path for path in found if path.stat().st_size}
    return printed if written is None else {**printed, **written.files}


def _kept(outputs: Mapping[str, Path], failed: Path | None) -> Path | None:
    if failed is None or not outputs:
        return None
    shutil.rmtree(failed, ignore_errors=True)
    failed.mkdir(parents=True)
    for name, path in outputs.items():
        (failed / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, failed / name)
    return failed


def _facts(setting: ProgramSetting, logs: list[SpanLogContents], profiled: int) -> dict[str, Any]:
    program, places = setting.places.program, setting.places.placement.places
    return {
        "warmup_iterations": program.warmup,
        "profiled_iterations": profiled,
        "tokens_per_iteration": program.spec.tokens,
        "program": {
            "command": list(program.spec.command),
            "launcher": program.spec.launcher,
            "marked_by": program.marked_by,
            "world_size": len(places),
            "working_folder": str(Path.cwd()),
            "files": _file_hashes(setting),
            "ranks": [
                {"rank": log.header.rank, "host": log.header.host, "process": log.header.gpu, **_software(setting, log)}
                for log in logs
            ],
            "unmarked_ranks": unmarked(logs, len(places)),
        },
    }


def _software(setting: ProgramSetting, log: SpanLogContents) -> dict[str, Any]:
    """Return the versions that a rank runs on, as its hook has written them; {} without a hook."""
    path = Path(f"{setting.span_log(log.header.rank)}.software.json")
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def _file_hashes(setting: ProgramSetting) -> dict[str, str]:
    """Return the SHA-256 of each file that the command names, by its word: what ran is more than its command line."""
    program, hashes = setting.places.program, {}
    values = program.values_everywhere
    for word in program.spec.command[1:]:
        # What a rank or its host is told differs from rank to rank, and is no file of the program.
        if placeholders_in(word) <= values.keys():
            path = os.path.join(Path.cwd(), filled(word, values))
            # A word may be a whole program, too long for the name of a file.
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    hashes[word] = file_digest(file, "sha256").hexdigest()
    return hashes
