"""Name the kinds of collectives for readers."""

_NAMES = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "all_to_all": "all-to-all",
    "collective": "other collective",
    "norm": "all-reduce of the gradient norm",
}


def kind_text(kind: str) -> str:
    """Return the name of a kind of span: ``all_reduce`` as ``all-reduce``."""
    return _NAMES.get(kind, kind.replace("_", " "))
