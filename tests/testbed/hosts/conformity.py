"""Whether a class has what a protocol asks for. Types are left to mypy, which knows nothing of Mininet's classes."""

import inspect


def differences(implementation: type, protocol: type) -> list[str]:
    """The members that it lacks, or that are called in another way."""
    return [name for name in sorted(_members(protocol)) if _shape(implementation, name) != _shape(protocol, name)]


def _members(protocol: type) -> set[str]:
    own = {name for base in protocol.__mro__ for name in vars(base) if getattr(base, "_is_protocol", False)}
    return {name for name in own if not name.startswith("_")}


def _shape(of: type, name: str) -> object:
    member = inspect.getattr_static(of, name, None)
    if not inspect.isfunction(member):
        return type(member)
    return [(parameter.name, parameter.kind) for parameter in inspect.signature(member).parameters.values()]
