"""Declare what is refused: what does not go together, names that must be known, and anything else.

Each slice yields its own, one loop checks them all. Pydantic is loaded by those who have models.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import KW_ONLY, dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec

from wanbed.ground.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo


@dataclass(frozen=True)
class Exclusion:
    """Fields or options of the user's that do not go with something else, and why.

    ``when`` says that the other thing is there, ``instead`` what to give for it to go. ``leave`` is what else can be
    left out: the field itself if it is None, nothing if it is empty. With ``given_in`` only fields count that this
    model has been given: they have neither their default nor ``none``.
    """

    fields: str | tuple[str, ...]
    reason: str
    instead: str = ""
    _: KW_ONLY
    when: bool = True
    leave: str | None = None
    given_in: "BaseModel | None" = None

    def message(self, model: "BaseModel | None" = None) -> str | None:
        """Return the message for the first field that counts, None if there is none: field, reason, remedy.

        ``model`` replaces ``given_in`` where that is None.
        """
        model = model if self.given_in is None else self.given_in
        for field in (self.fields,) if isinstance(self.fields, str) else self.fields:
            if self.when and (model is None or _is_given(model, field)):
                leave = field.rpartition(".")[2] if self.leave is None else self.leave
                remedies = filter(None, (self.instead, f"leave {leave} out" if leave else ""))
                return f"{field}: {self.reason}: {', or '.join(remedies)}"
        return None


@dataclass(frozen=True)
class KnownName:
    """A name of the user's in a field, which must be one of those that are ``known``.

    ``fault`` says what is wrong if it is none of them. The remedy is the name that is near, ``otherwise`` if none is.
    """

    field: str
    written: str
    known: Collection[str]
    fault: str
    otherwise: str

    def message(self, _: "BaseModel | None" = None) -> str | None:
        """Return the message, field, fault, remedy; None if the name is known."""
        if self.written in self.known:
            return None
        return f"{self.field}: {self.fault}, {did_you_mean(self.written, self.known, self.otherwise)}"


@dataclass(frozen=True)
class Refusal:
    """Something else that is refused, and why: one line that names field and remedy."""

    text: str

    def message(self, _: "BaseModel | None" = None) -> str:
        """Return the line."""
        return self.text


Declared = Exclusion | KnownName | Refusal

Arguments = ParamSpec("Arguments")


def first_refusal(declared: Iterable[Declared], model: "BaseModel | None" = None) -> str | None:
    """Return the first message of what is declared, None if nothing is refused.

    What comes after it is not asked for, so that a generator can rely on all that it has declared before.
    ``model`` is that of exclusions that have none of their own.
    """
    return next((message for each in declared if (message := each.message(model)) is not None), None)


def check_exclusions(*exclusions: Exclusion, of: "BaseModel | None" = None, where: str = "") -> None:
    """Raise InputError for the first exclusion that is met, as ``first_refusal`` finds it, after ``where``."""
    check_declared(exclusions, of, where)


def check_declared(declared: Iterable[Declared], of: "BaseModel | None" = None, where: str = "") -> None:
    """Raise InputError for the first that is refused of what is declared, as ``first_refusal`` finds it."""
    if (refusal := first_refusal(declared, of)) is not None:
        raise InputError(f"{where}{refusal}")


def as_check(declare: Callable[Arguments, Iterable[Declared]]) -> Callable[Arguments, None]:
    """Make a check of a function that declares: when called, it raises InputError for the first that is refused."""

    @wraps(declare)
    def check(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        check_declared(declare(*args, **kwargs))

    return check


def _is_given(model: "BaseModel", path: str) -> bool:
    value: Any = model
    field: FieldInfo | None = None
    for written in path.split("."):
        if isinstance(value, tuple):
            value = value[int(written)]
        elif value is not None:
            known = type(value).model_fields.items()
            name, field = next((name, field) for name, field in known if written == (field.alias or name))
            value = getattr(value, name)
    return value not in (None, "none") and (field is None or value != field.get_default(call_default_factory=True))
