"""``wanbed clean``: remove what killed runs left behind, and nothing else."""

import json
import os
from dataclasses import asdict

from runner.cli.arguments import AsJson
from runner.cli.exit_status import one_line_errors
from testbed.claims.cleaning import clean as clean_testbeds
from testbed.claims.registry import STATE_ROOT, claims
from testbed.kernel.missing import MissingError


def clean(as_json: AsJson = False) -> None:
    """Remove what killed runs left on this machine, by recorded identifiers. Testbeds in use are not touched."""
    with one_line_errors():
        if os.geteuid() != 0 and STATE_ROOT.exists():
            raise MissingError("what a run left belongs to root: run wanbed clean as root, or with sudo")
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
