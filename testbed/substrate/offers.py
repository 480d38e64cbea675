"""Ask every substrate whether it works on this machine, inside a user namespace if hosts can be made only there.

As a program: print the offers as JSON.
"""

import json
import subprocess
from dataclasses import asdict

from wanbed.module_process import module_command
from wanbed.testbed.kernel.killed import check_not_killed
from wanbed.testbed.rights.hosts_allowed import ENTER, HostsAllowed
from wanbed.testbed.substrate.offer import Offer
from wanbed.testbed.substrate.probe import probe_guest, probe_kernel

_PROBES = (probe_kernel, probe_guest)
_LIMIT_S = 60.0


def machine_offers(allowed: HostsAllowed) -> tuple[Offer, ...]:
    """Return the offers of the substrates that ``wanbed run`` would have to choose from, best first."""
    if not allowed.by_entering:
        return _offers()
    command = [*ENTER, *module_command("wanbed.testbed.substrate.offers")]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_LIMIT_S)
    except subprocess.CalledProcessError as failed:
        check_not_killed(failed)
        return _offers()
    except (OSError, subprocess.SubprocessError):
        return _offers()
    return tuple(Offer(**each) for each in json.loads(asked.stdout))


def _offers() -> tuple[Offer, ...]:
    return tuple(probe() for probe in _PROBES)


if __name__ == "__main__":
    print(json.dumps([asdict(offer) for offer in _offers()]))
