"""List the programs that a machine needs before hosts come up on it."""

HOST_PROGRAMS = {
    "mnexec": "mininet",
    "ifconfig": "net-tools",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "ping": "iputils-ping",
    "iperf3": "iperf3",
}
"""Programs without which no host comes up, and the Debian package of each."""
