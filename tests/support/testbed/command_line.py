from pathlib import Path


def command_line(pid: int) -> str:
    """Return the command line of a process, with spaces between its words; "" if there is none."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
