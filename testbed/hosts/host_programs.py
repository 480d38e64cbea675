"""List the programs that hosts need on a machine."""

HOST_PROGRAMS = {
    "mnexec": "mininet",
    "ifconfig": "net-tools",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "ping": "iputils-ping",
    "iperf3": "iperf3",
}
"""Programs that every host needs, and the Debian package of each."""
