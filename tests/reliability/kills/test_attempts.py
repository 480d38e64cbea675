"""What a command says of an interrupt is its own from its first line on."""

from tests.reliability.kills.attempts import in_pythons_start

BEFORE = """Traceback (most recent call last):
  File "<frozen runpy>", line 112, in _get_module_details
  File "/here/wanbed/__init__.py", line 8, in <module>
KeyboardInterrupt
"""
LATER = """Traceback (most recent call last):
  File "<frozen runpy>", line 88, in _run_code
  File "/here/wanbed/command.py", line 25, in main
KeyboardInterrupt
"""


def test_only_before_the_first_line_may_an_interrupt_be_told_by_python() -> None:
    assert in_pythons_start(BEFORE)
    assert not in_pythons_start(LATER)
    assert not in_pythons_start(f"wanbed: measuring the links\n{BEFORE}")
    assert not in_pythons_start(BEFORE.replace("/wanbed/__init__.py", "/wanbed/workloads/rank.py"))
    assert not in_pythons_start("wanbed: interrupted, nothing of it is left running\n")
