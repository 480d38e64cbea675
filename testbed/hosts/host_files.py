"""Write the files of /etc that a testbed's hosts have of their own, and say which of the machine's they cover.

Without a name server of its own, a host would ask the machine's, which it does not reach: each look-up of an unknown
name would then wait for seconds. So hosts ask themselves, where nothing listens and the kernel refuses at once.
"""

from pathlib import Path

_HOSTS, _RESOLVER = "hosts", "resolv.conf"
_REFUSING = "nameserver 127.0.0.1\noptions attempts:1 timeout:1\n"


def write_host_files(folder: Path, hosts_file: str) -> Path:
    """Write the files into the new folder ``folder`` and return it. ``hosts_file`` is the text of /etc/hosts."""
    folder.mkdir()
    (folder / _HOSTS).write_text(hosts_file)
    (folder / _RESOLVER).write_text(_REFUSING)
    return folder


def covered(etc: Path, machine: Path = Path("/etc")) -> list[tuple[Path, Path]]:
    """Return each file of the folder ``etc`` with the machine's file of that name, on which a host mounts it.

    A machine without a resolv.conf, or with a link to none, needs no mount: the C library then asks 127.0.0.1 anyway.
    """
    files = [(path, machine / path.name) for path in sorted(etc.iterdir())]
    return [(path, place) for path, place in files if place.exists() or place.name != _RESOLVER]
