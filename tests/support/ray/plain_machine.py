"""A machine that agents can drive, without any network: it answers, refuses, breaks and dies on demand."""

import os
import time
from typing import NoReturn

from wanbed.ground.errors import InputError
from wanbed.workloads.compute.backends.replay_backend import ReplayBackend


class PlainMachine:
    def __init__(self, address: str | None) -> None:
        self.address = address

    def echo(self, value: object) -> object:
        return value

    def sleep(self, time_s: float) -> float:
        time.sleep(time_s)
        return time_s

    def refuse(self) -> NoReturn:
        raise InputError("hosts: give fewer")

    def break_down(self) -> float:
        return 1 / 0

    def die(self) -> NoReturn:
        os._exit(1)


class LackingBackend(ReplayBackend):
    def missing(self) -> str:
        return "no abacus: buy one"
