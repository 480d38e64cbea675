"""Declare what does not go together: each slice has a table of exclusions, one loop checks it, in one form of message.

Pydantic is loaded by those who have models.
"""

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

from wanbed.ground.errors import InputError

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo


@dataclass(frozen=True)
class Exclusion:
    """Fields or options of the user's that do not go with something else, and why.

    ``when`` says that the other thing is there, ``instead`` what to give for it to go. ``leave`` is what else can be
    left out: the field itself if it is None, nothing if it is empty.
    """

    fields: str | tuple[str, ...]
    reason: str
    instead: str = ""
    _: KW_ONLY
    when: bool = True
    leave: str | None = None

    def refusal(self, field: str) -> str:
        """Return the message for one of the fields: field, reason, remedy."""
        leave = field.rpartition(".")[2] if self.leave is None else self.leave
        remedies = (self.instead, f"leave {leave} out" if leave else "")
        return f"{field}: {self.reason}: {', or '.join(filter(None, remedies))}"


def first_refusal(exclusions: Iterable[Exclusion], model: "BaseModel | None" = None) -> str | None:
    """Return the message of the first exclusion that is met, None if everything goes together.

    Only fields count that are given in ``model``, where there is one: they have neither their default nor ``none``.
    """
    for exclusion in exclusions:
        fields = (exclusion.fields,) if isinstance(exclusion.fields, str) else exclusion.fields
        for field in fields if exclusion.when else ():
            if model is None or _is_given(model, field):
                return exclusion.refusal(field)
    return None


def check_exclusions(*exclusions: Exclusion, of: "BaseModel | None" = None, where: str = "") -> None:
    """Raise InputError, which begins with ``where``, for the first exclusion that is met, as ``first_refusal`` does."""
    if (refusal := first_refusal(exclusions, of)) is not None:
        raise InputError(f"{where}{refusal}")


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
