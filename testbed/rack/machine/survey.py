"""Look at what one machine offers to a rack, without changing it."""

import os
from typing import Any

from wanbed.testbed.hosts.host_environment import HOST_PROGRAMS, missing_programs
from wanbed.testbed.rack.machine.facts import read_machine_facts
from wanbed.testbed.rack.machine.overlays import lacking_overlays
from wanbed.testbed.rack.machine_plan import HEADER_BYTES, VXLAN
from wanbed.testbed.rights import hosts_allowed
from wanbed.testbed.substrate.probe import probe_kernel


def survey_machine(address: str | None) -> dict[str, Any]:
    """Return the machine's facts, what it ``can``, and what is ``missing``, one line each, in plain JSON types.

    ``address`` is that of its card. Of what carries packets between machines, only VXLAN is missed: it is the default.
    """
    facts = read_machine_facts(address)
    lacking, lacking_programs = lacking_overlays(), missing_programs()
    missing = [*facts.missing, *([lacking[VXLAN]] if VXLAN in lacking else [])]
    if facts.card is None:
        missing.append(f"no interface has the address {address}: give `ray start` --node-ip-address that of the card")
    can = {
        "root": os.geteuid() == 0,
        "hosts": hosts_allowed().directly is None,
        "netem": probe_kernel().available,
        **{kind: kind not in lacking for kind in HEADER_BYTES},
        **{program: program not in lacking_programs for program in HOST_PROGRAMS},
    }
    return {**facts.document(), "can": can, "missing": missing, "lacking_overlays": lacking}
