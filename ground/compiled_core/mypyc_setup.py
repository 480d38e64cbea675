"""Compile the modules whose source files are given, below the current folder: a program of ``core_build``.

What they import beside each other is not read: it may be anything at run time, as for the sources. So compiled code
depends on no type that is stated elsewhere.
"""

import sys
from pathlib import Path

from mypyc.build import mypycify
from setuptools import setup

CONFIGURATION = "core.ini"
PRODUCTS = Path(__file__).with_name("products.h")
BUILT = "built"


def compile_modules(files: list[str], analysed: list[str]) -> None:
    """Write an extension module for each of ``files``, and the code that they share, below ``BUILT``.

    ``analysed`` are modules that are read but not compiled.
    """
    followed = "".join(
        f"[mypy-{module}]\nfollow_imports = silent\n" for module in (*analysed, "librt.vecs", "mypy_extensions")
    )
    Path(CONFIGURATION).write_text(
        f"[mypy]\nfollow_imports = skip\nignore_missing_imports = true\n{followed}", encoding="utf-8"
    )
    extensions = mypycify([f"--config-file={CONFIGURATION}", "--no-site-packages", *files], opt_level="2")
    for extension in extensions:
        # A product may not be rounded differently because a sum follows it.
        extension.extra_compile_args.append("-ffp-contract=off")
        # Nothing is linked with it, so its functions may be called directly and inlined.
        extension.extra_compile_args.append("-fvisibility=hidden")
        extension.extra_compile_args += ["-include", str(PRODUCTS)]
    setup(
        name="compiled-core",
        ext_modules=extensions,
        script_args=["build_ext", "--build-lib", BUILT, "--build-temp", "objects"],
    )


if __name__ == "__main__":
    compile_modules(sys.argv[1].split(","), sys.argv[2].split(","))
