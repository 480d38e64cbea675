"""The programs, libraries and kernel modules of Debian packages that a bare machine lacks, and their kit paths."""

PACKAGES = (
    "mininet",
    "net-tools",
    "iperf3",
    "libiperf0",
    "libsctp1",
    "iputils-ping",
    "kmod",
    "user-mode-linux",
)
"""The Debian packages that files are taken from. Whole ones would be larger than everything else together."""

MODULES = "usr/lib/uml/modules"

FILES = {
    "usr/bin/mnexec": "bin/mnexec",
    "sbin/ifconfig": "bin/ifconfig",
    "usr/bin/iperf3": "bin/iperf3",
    "bin/ping": "bin/ping",
    "bin/kmod": "sbin/insmod",
    "usr/bin/linux.uml": "bin/linux.uml",
    "usr/lib/x86_64-linux-gnu/libiperf.so.0": "lib/libiperf.so.0",
    "usr/lib/x86_64-linux-gnu/libsctp.so.1": "lib/libsctp.so.1",
}
"""Path in the unpacked packages, and path in the kit's ``system`` folder. kmod is insmod if it is called so."""
