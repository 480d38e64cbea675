"""``wanbed doctor``: report what this machine can do, and what to install for the rest."""

import json

import typer
from rich.console import Console

from runner.cli.arguments import AsJson
from runner.cli.exit_status import one_line_errors
from runner.runs.faults import MACHINE_LACKS
from testbed.doctor import WITHOUT_NETEM, WITHOUT_WAN, Diagnosis, diagnose
from testbed.gpus.gpus import Gpu


def doctor(as_json: AsJson = False) -> None:
    """Report what this machine can do, and what to install for the rest. Exit status 5 if it cannot emulate a WAN."""
    with one_line_errors():
        diagnosis = diagnose()
        if as_json:
            print(json.dumps(diagnosis.document(), indent=2))
        else:
            _print(diagnosis)
    if diagnosis.missing:
        raise typer.Exit(MACHINE_LACKS)


def _print(diagnosis: Diagnosis) -> None:
    console = Console(highlight=False, soft_wrap=True)
    lacks = f" ({diagnosis.tier.lacks})" if diagnosis.tier.lacks else ""
    console.print(f"tier          {diagnosis.tier.name}{lacks}", markup=False)
    for right in diagnosis.rights:
        console.print(f"  more with   {right.right}: {right.brings}", markup=False)
    if diagnosis.substrate:
        console.print(f"netem         {diagnosis.substrate}: {diagnosis.reason}", markup=False)
    else:
        console.print(f"netem         none: {WITHOUT_NETEM}{WITHOUT_WAN if diagnosis.hosts else ''}", markup=False)
    for offer in diagnosis.offers:
        state = "yes" if offer.available else "no "
        console.print(f"  {offer.name:<10}  {state} {offer.reason}", markup=False)
    relay = diagnosis.relay
    console.print(f"relay         {'yes' if relay.available else 'no'}: {relay.reason}", markup=False)
    virtual = diagnosis.virtual_time
    console.print(f"virtual time  {'yes' if virtual.available else 'no'}: {virtual.reason}", markup=False)
    if virtual.path is not None:
        console.print(f"  kernel      {virtual.path}, configuration {virtual.configuration_hash}", markup=False)
    for remedy in virtual.root_for:
        console.print(f"  with root   {remedy}", markup=False)
    if not diagnosis.gpus:
        console.print("GPUs          none", markup=False)
    for number, gpu in enumerate(diagnosis.gpus):
        console.print(f"{'' if number else 'GPUs':<14}{_gpu_text(gpu)}", markup=False)
    for each in diagnosis.missing:
        console.print(f"missing       {each.what}: {each.why}. Remedy: {each.install}", markup=False)


def _gpu_text(gpu: Gpu) -> str:
    memory = "" if gpu.memory_bytes is None else f", {gpu.memory_bytes / 2**30:.0f} GiB"
    fault = "" if gpu.fault is None else f", cannot be used: {gpu.fault}"
    driver = "" if gpu.driver is None else f", driver {gpu.driver}"
    return f"{gpu.model}{memory}{driver}{'' if gpu.uuid is None else f', {gpu.uuid}'}{fault}"
