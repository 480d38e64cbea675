"""Commands as an ordinary user of a container: uid 1000, no capabilities, no way to get any, a fresh HOME.

What the machine keeps for root is made reachable (Python, this checkout) in a mount namespace of the command's own.
There /dev/net/tun can be opened by everybody, or is not there.
"""

import os
import shlex
import stat
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
USER = 1000
UNPRIVILEGED = ("--no-new-privs", "--bounding-set", "-all", "--inh-caps", "-all")
ORDINARY = ("--reuid", str(USER), "--regid", str(USER), "--clear-groups", *UNPRIVILEGED)
DEVICES = {
    "tap": "mount -t tmpfs -o mode=755,dev tmpfs /dev/net && mknod -m 666 /dev/net/tun c 10 200",
    "raw veth": "mkdir -p /dev/net && mount -t tmpfs tmpfs /dev/net",
}
"""What a machine has to connect the guest by, and how it gets it."""


def as_ordinary_user(argv: Iterable[str], *, device: str, home: Path) -> list[str]:
    """Return the command line that runs a program so; the process keeps its PID on the way."""
    setting_up = [*_reachable((Path(sys.base_prefix), Path(sys.prefix), ROOT), home / "held"), DEVICES[device]]
    script = " && ".join([*setting_up, f'cd {shlex.quote(str(home))} && exec "$@"'])
    variables = (f"HOME={home}", f"PYTHONPATH={ROOT}", "PYTHONDONTWRITEBYTECODE=1")
    return ["unshare", "--mount", "sh", "-c", script, "sh", "setpriv", *ORDINARY, "env", *variables, *argv]


def _reachable(paths: Iterable[Path], held: Path) -> list[str]:
    """Return commands after which everybody can reach these paths, whatever their parents' modes are."""
    closed = {path: next(filter(_is_closed, reversed(path.parents)), None) for path in paths}
    hidden = {path: folder for path, folder in closed.items() if folder is not None}
    commands = []
    for number, path in enumerate(hidden):
        place = held / str(number)
        commands += [f"mkdir -p {shlex.quote(str(place))}", shlex.join(["mount", "--bind", str(path), str(place)])]
    commands += [
        f"mount -t tmpfs -o mode=755 tmpfs {shlex.quote(str(folder))}" for folder in sorted({*hidden.values()})
    ]
    for number, path in enumerate(hidden):
        commands.append(shlex.join(["mkdir", "-p", str(path)]))
        commands.append(shlex.join(["mount", "--bind", str(held / str(number)), str(path)]))
    return commands


def _is_closed(folder: Path) -> bool:
    return not os.stat(folder).st_mode & stat.S_IXOTH
