"""Load a class by its path, ``package.module:Class``, in processes that do not search entry points for names."""

from importlib import import_module
from typing import Any, TypeGuard

from wanbed.ground.errors import did_you_mean, shown
from wanbed.ground.own_code import OWN_FAULTS, check_options, described, described_import


def load_subclass(class_path: str, base: type[Any]) -> type[Any]:
    """Return the subclass of ``base`` at ``class_path``. Raise ValueError with the path and the fault."""
    module_name, separator, class_name = class_path.partition(":")
    if not (module_name and separator and class_name):
        raise ValueError(f"{class_path!r} is not the path of a class: write it like package.module:Class")
    if "/" in module_name or module_name.startswith("."):
        raise ValueError(
            f"{shown(class_path)} has the path of a file: write it like module:Class, with the module's folder on "
            "PYTHONPATH"
        )
    try:
        module = import_module(module_name)
    except ImportError as failure:
        raise ValueError(f"{class_path}: {failure}") from failure
    except OWN_FAULTS as fault:
        # Another author's module may raise anything.
        raise ValueError(f"{class_path}: {described_import(fault, __file__)}") from fault
    if not hasattr(module, class_name):
        classes = sorted(name for name, value in vars(module).items() if _is_subclass(value, base))
        known = f"it has {', '.join(classes)}" if classes else f"it has no subclass of {base.__qualname__}"
        raise ValueError(
            f"{class_path}: {module_name} has no class {class_name!r}: {did_you_mean(class_name, classes, known)}"
        )
    found: object = getattr(module, class_name)
    if not _is_subclass(found, base):
        raise ValueError(f"{class_path}: {class_name} is not a subclass of {base.__module__}.{base.__qualname__}")
    return found


def _is_subclass(value: object, base: type[Any]) -> TypeGuard[type[Any]]:
    return isinstance(value, type) and issubclass(value, base) and value is not base


def create(class_path: str, base: type[Any], /, *arguments: object, **options: object) -> Any:
    """Create an object of the subclass of ``base`` at ``class_path``.

    Raise ValueError with the path and the fault, also for options that the class does not take, which lists those that
    it takes, and for any other error of the class, which names file and line.
    """
    kind = load_subclass(class_path, base)
    try:
        check_options(kind, len(arguments), options)
    except ValueError as refusal:
        raise ValueError(f"{class_path}: {refusal}") from None
    try:
        return kind(*arguments, **options)
    except ValueError:
        raise
    except OWN_FAULTS as fault:
        raise ValueError(f"{class_path}: {described(fault, kind)}") from fault
