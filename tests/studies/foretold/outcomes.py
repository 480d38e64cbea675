"""Outcomes that were never simulated."""

from collections.abc import Sequence
from pathlib import Path

from studies.foretold.outcome import Outcome
from studies.foretold.source import PUBLISHED, Form, Group, Row


def outcome(
    published: float,
    simulated: float,
    *,
    counted: str = "foretold",
    label: str = "a row",
    kinds: Sequence[str] = ("foretold", "explained", "tried"),
) -> Outcome:
    """An outcome in a group that has one form of each of ``kinds``."""
    forms = {
        kind: Form.model_validate(
            {"name": f"{kind} form", "counted": kind, "why": "-", "experiment": "e.yaml", "variant": "v"}
        )
        for kind in kinds
    }
    group = Group(name="g", title="Group", table="t.csv", shown=("what",), forms=tuple(forms.values()))
    return Outcome(Row(Path("s"), group, forms[counted], {"what": label, PUBLISHED: str(published)}), simulated)
