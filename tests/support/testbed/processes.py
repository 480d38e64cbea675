from pathlib import Path


def command_line(pid: int) -> str:
    """Return the command line of a process, with spaces between its words; "" if there is none."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def children(pid: int) -> list[int]:
    """Return the processes that a process has started itself, the oldest first."""
    return sorted(child for child, parent in _parents().items() if parent == pid)


def descendants(pid: int) -> list[int]:
    """Return the processes that a process has started, and those that they have: parents before children."""
    parents, found = _parents(), [pid]
    for each in found:
        found += sorted(child for child, parent in parents.items() if parent == each)
    return found[1:]


def _parents() -> dict[int, int]:
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            # It has just ended.
            continue
    return parents
