"""Let Ctrl-C and other signals through to a simulation whose code is compiled."""


def let_signals_in() -> None:
    """Have Python run the handlers of signals that have arrived, which may raise.

    It does so only between steps of code that it interprets, like these: this module is never compiled. A
    handler that has run in the middle of compiled code has its exception raised here (``interrupted_products.h``).
    """
