"""Check that a class implements a protocol's members. mypy cannot: it has no types of Mininet's classes."""

import inspect


def differences(implementation: type, protocol: type) -> list[str]:
    """Return the members that the class lacks or that have other parameters."""
    return [name for name in sorted(_members(protocol)) if _shape(implementation, name) != _shape(protocol, name)]


def _members(protocol: type) -> set[str]:
    own = {name for base in protocol.__mro__ for name in vars(base) if getattr(base, "_is_protocol", False)}
    return {name for name in own if not name.startswith("_")}


def _shape(of: type, name: str) -> object:
    member = inspect.getattr_static(of, name, None)
    if not inspect.isfunction(member):
        return type(member)
    return [(parameter.name, parameter.kind) for parameter in inspect.signature(member).parameters.values()]
