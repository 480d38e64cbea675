import subprocess
from pathlib import Path

import pytest

from wanbed.ground.errors import MissingError
from wanbed.testbed.virtual_time import kernel_build
from wanbed.testbed.virtual_time.kernel_build import BuildError, build, find_source, strayed_options
from wanbed.testbed.virtual_time.kernel_cache import COMPILER_OPTIONS, built_kernels, configuration

MAKEFILE = """
allnoconfig:
\tgrep . $(KCONFIG_ALLCONFIG) > .config
linux:
\techo compiled $(KCFLAGS) >> ../../count
\ttouch linux && chmod +x linux
"""


def source(folder: Path, *, makefile: str = MAKEFILE) -> Path:
    """An archive that makes a kernel of nothing."""
    tree = folder / "linux-source-6.1"
    tree.mkdir()
    (tree / "Makefile").write_text(makefile)
    archive = folder / "linux-source-6.1.tar.xz"
    subprocess.run(["tar", "cJf", archive, "-C", folder, tree.name], check=True)
    return archive


@pytest.fixture(autouse=True)
def _made_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_build, "_TOOLS", ("make", "tar", "xz"))
    answers = {"nm": "0000000060001000 b time_travel_time\n0000000060001008 b other", "make": "6.1.192"}
    monkeypatch.setattr(kernel_build, "_answer", lambda command, _: answers[command[0]])


def test_a_kernel_is_built_once_and_found_in_the_cache(tmp_path: Path) -> None:
    archive, cache = source(tmp_path), tmp_path / "cache"
    folder = build(archive, cache)
    (kernel,) = built_kernels([cache])
    assert kernel.program.parent == folder
    assert (kernel.record.release, kernel.record.clock_address) == ("6.1.192", 0x60001000)
    assert build(archive, cache) == folder
    assert (cache / "count").read_text() == f"compiled {' '.join(COMPILER_OPTIONS)}\n"
    assert {path.name for path in cache.iterdir()} == {folder.name, "lock", "count"}


def test_a_build_that_fails_is_one_line_and_leaves_its_log_alone(tmp_path: Path) -> None:
    archive, cache = source(tmp_path, makefile=MAKEFILE + "\tfalse\n"), tmp_path / "cache"
    with pytest.raises(BuildError, match=r"^compiling failed: see (.*\.log)$") as caught:
        build(archive, cache)
    log = Path(str(caught.value).rpartition(" ")[2])
    assert "Error 1" in log.read_text()
    assert {path.name for path in cache.iterdir()} == {log.name, "lock", "count"}
    assert built_kernels([cache]) == []


def test_what_a_killed_build_left_is_cleared_away(tmp_path: Path) -> None:
    left = tmp_path / "cache" / "abc.partial"
    left.mkdir(parents=True)
    build(source(tmp_path), tmp_path / "cache")
    assert not left.exists()


def test_an_option_that_did_not_stick_is_named(tmp_path: Path) -> None:
    archive = source(tmp_path, makefile=MAKEFILE.replace("grep .", "grep --invert-match NETEM"))
    with pytest.raises(BuildError, match=r"this kernel's configuration does not take NET_SCH_NETEM$"):
        build(archive, tmp_path / "cache")


def test_an_option_that_is_a_module_strays() -> None:
    assert strayed_options(configuration()) == []
    assert strayed_options(configuration().replace("CONFIG_VETH=y", "CONFIG_VETH=m")) == ["VETH"]


def test_the_newest_source_that_is_installed_is_taken(tmp_path: Path) -> None:
    for version in ("5.10", "6.1", "6.12"):
        (tmp_path / f"linux-source-{version}.tar.xz").touch()
    assert find_source(tmp_path).name == "linux-source-6.12.tar.xz"


def test_without_a_source_its_package_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="apt-get install linux-source"):
        find_source(tmp_path)


def test_a_lacking_tool_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_build, "_TOOLS", ("make", "a-tool-that-is-nowhere"))
    with pytest.raises(MissingError, match=r"^a-tool-that-is-nowhere not installed: ./setup.sh virtual"):
        build(source(tmp_path), tmp_path / "cache")
