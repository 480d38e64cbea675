"""``wanbed clean``: remove what killed runs left behind, and nothing else."""

import json
from dataclasses import asdict

from wanbed.runner.cli.arguments import AsJson, RackAddress
from wanbed.runner.cli.exit_status import fail, log, one_line_errors
from wanbed.runner.runs.faults import NO_DATA
from wanbed.testbed.claims.cleaning import clean as clean_testbeds
from wanbed.testbed.claims.registry import claims


def clean(rack: RackAddress = None, as_json: AsJson = False) -> None:
    """Remove what killed runs left on this machine, by recorded identifiers. Testbeds in use are not touched.

    These are the runs of this user: each user's are recorded apart. With --rack those of the user who has started Ray,
    on every machine of the cluster.
    """
    with one_line_errors():
        if rack is not None:
            _clean_rack(rack, as_json)
            return
        cleaned = clean_testbeds()
        in_use = [claim.record for claim in claims()]
        if as_json:
            kept = [record.identifier for record in in_use]
            print(json.dumps({"cleaned": [asdict(each) for each in cleaned], "in_use": kept}, indent=2))
            return
        for each in cleaned:
            print(f"removed {each.identifier} ({each.source}): {each.processes} processes and all they held")
        for record in in_use:
            print(f"left alone {record.identifier} ({record.source}): process {record.owner_pid} uses it")
        if not cleaned:
            print("nothing was left behind")


def _clean_rack(address: str, as_json: bool) -> None:
    # It needs more modules than cleaning this machine does.
    from wanbed.runner.rack_runs.cleaning import clean_rack

    found = clean_rack(address, log)
    if as_json:
        print(json.dumps({"machines": [asdict(each) for each in found]}, indent=2))
    for machine in () if as_json else found:
        for cleaned in machine.cleaned:
            print(
                f"{machine.name}: removed {cleaned['identifier']} ({cleaned['source']}): {cleaned['processes']} "
                "processes and all they held"
            )
        for record in machine.in_use:
            print(
                f"{machine.name}: left alone {record['identifier']} ({record['source']}): process {record['process']} "
                "uses it"
            )
        if machine.fault is not None:
            print(f"{machine.name}: not cleaned: {machine.fault}")
        elif not machine.cleaned:
            print(f"{machine.name}: nothing was left behind")
    if failed := [machine for machine in found if machine.fault is not None]:
        fail(f"not cleaned: {', '.join(machine.name for machine in failed)}", NO_DATA)
