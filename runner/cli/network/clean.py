"""``wanbed clean``: remove what killed runs left behind, and nothing else."""

import json
from dataclasses import asdict

from runner.cli.arguments import AsJson
from runner.cli.exit_status import one_line_errors
from testbed.claims.cleaning import clean as clean_testbeds
from testbed.claims.registry import claims


def clean(as_json: AsJson = False) -> None:
    """Remove what killed runs left on this machine, by recorded identifiers. Testbeds in use are not touched.

    These are the runs of this user: each user's are recorded apart.
    """
    with one_line_errors():
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
