from wanbed.module_process import module_command
from wanbed.testbed.virtual_time.processes.inner_processes import InnerProcess, described, parse_processes, waiting

TEXT = """1 R /bin/sh /run/init
40 S bash --norc -is mininet:east-0
41 S grep a
42 S sleep 5
43 R /usr/bin/python3 -c while True: pass
nonsense
99 R /bin/sh /run/init
"""
OWN = "/run/init"


def numbers(text: str) -> list[int]:
    return [process.number for process in waiting(parse_processes(text), OWN)]


def test_all_but_shells_sleeps_and_the_first_process_may_wait_for_each_other() -> None:
    assert numbers(TEXT) == [41, 43]


def test_where_there_are_only_shells_and_sleeps_they_are_reported() -> None:
    kept = "".join(line + "\n" for line in TEXT.splitlines() if line.startswith(("1 ", "40", "42")))
    assert numbers(kept) == [40, 42]


def test_a_command_is_reported_by_its_program_and_shortened() -> None:
    command = " ".join(["/usr/bin/python3", *module_command("wanbed.workloads.rank")[1:]])
    assert str(InnerProcess(7, "R", command)) == "python3 -m wanbed.workloads.rank (process 7)"
    assert len(str(InnerProcess(7, "R", "/bin/echo " + 1000 * "x"))) < 110


def test_of_many_the_first_are_reported_and_how_many_more() -> None:
    assert described([InnerProcess(n, "S", "cat") for n in range(11)]).endswith("cat (process 7), and 3 more")
    assert described([]) == "no process"
