"""``wanbed compile``: compile the simulator's hot modules, so that simulations take less time."""

import json
from typing import Annotated

import typer

from wanbed.ground.compiled_core.core_build import build_core
from wanbed.ground.compiled_core.core_cache import PURE
from wanbed.runner.cli.arguments import AsJson
from wanbed.runner.cli.exit_status import one_line_errors


def compile_(
    again: Annotated[bool, typer.Option("--again", help="Compile even what is compiled already.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compile the simulator's hot modules into your cache: same results, sooner.

    Simulations, plans and ranks use them from then on. The results stay the same to the byte. When the sources have
    changed, the compiled modules are not used until this is called again. WANBED_PURE=1 has the sources run anyway.
    """
    with one_line_errors():
        folder, built = build_core(again=again)
        if as_json:
            print(json.dumps({"folder": str(folder), "built": built}))
        else:
            print(f"{folder}: {'compiled' if built else 'was compiled before'}; {PURE}=1 runs without it")
