import subprocess
from pathlib import Path

import pytest

from wanbed.ground.errors import InputError
from wanbed.testbed.kernel.inside import TIME_TRAVEL
from wanbed.testbed.virtual_time.guest_boot import GuestCommand, check_visible, init_script, kernel_command

HARD = 'it\'s $HOME `x`\n\\ "q"'


def test_init_script_is_valid_shell_for_any_command(tmp_path: Path) -> None:
    command = GuestCommand(["echo", HARD], tmp_path / HARD, {"A": HARD, "not a name": "1", "BASH_FUNC_x%%": "() {"})
    script = init_script(command)
    subprocess.run(["sh", "-n"], input=script, text=True, check=True)
    assert "not a name" not in script
    assert "BASH_FUNC" not in script


def test_a_variable_arrives_as_it_is() -> None:
    (export,) = [
        part
        for part in init_script(GuestCommand(["true"], Path("/"), {"A": HARD})).split("export ")
        if part[:2] == "A="
    ]
    value = export[: export.rindex("'") + 1]
    shown = subprocess.run(["sh", "-c", f'{value}; printf %s "$A"'], capture_output=True, text=True, check=True)
    assert shown.stdout == HARD


def test_the_kernels_own_arguments_are_no_variables_of_the_command() -> None:
    script = init_script(GuestCommand(["true"], Path("/"), {"mem": "of the caller"}))
    arguments = [word.split("=")[0] for word in kernel_command(Path("/cache/linux"), 2**30) if "=" in word]
    assert {"mem", "uml_dir"} < set(arguments)
    assert script.index("unset mem uml_dir") < script.index("export mem='of the caller'")


@pytest.mark.parametrize(("given", "source"), [(b"", "< /run/outside/stdin"), (None, "< /dev/null")])
def test_command_reads_its_input_or_nothing(given: bytes | None, source: str) -> None:
    assert source in init_script(GuestCommand(["cat"], Path("/"), {}, given))


def test_the_kernel_is_started_in_virtual_time_with_its_memory() -> None:
    words = kernel_command(Path("/cache/linux"), 3 * 2**30)
    assert words[:2] == ["/cache/linux", TIME_TRAVEL]
    assert "mem=3072M" in words
    assert len(" ".join(words)) < 4096, "where the kernel's command line ends"


@pytest.mark.parametrize("hidden", ["/dev/shm/x.yaml", "/run/user/0/x.yaml", "/proc/self/x"])
def test_a_file_that_a_guest_would_not_see_is_refused(hidden: str) -> None:
    with pytest.raises(InputError, match="which virtual time has of its own: put it elsewhere"):
        check_visible(Path(hidden), "x.yaml")
    check_visible(Path("/home/x.yaml"), "x.yaml")
