from wanbed.results.reading.summaries.variant_differences import differences, variant_fields

GPIPE = {"name": "gpipe", "schedule": "gpipe", "transport": {"connections": 1, "sharing": "none"}, "placement": None}
ATLAS = {
    "name": "atlas",
    "schedule": "atlas",
    "transport": {"connections": "auto", "sharing": "temporal"},
    "placement": ["east", "west"],
}


def manifest(*variants: object) -> dict[str, object]:
    return {"experiment": {"variants": list(variants)}}


def test_every_field_that_the_first_variant_has_otherwise_is_named() -> None:
    assert differences(manifest(GPIPE, ATLAS), "gpipe", "atlas") == (
        "schedule atlas against gpipe",
        "connections auto against 1",
        "sharing temporal against none",
        "placement [east, west] against default",
    )
    assert differences(manifest(GPIPE, ATLAS), "gpipe", "gpipe") == ()


def test_a_manifest_without_the_experiment_or_one_of_the_two_names_nothing_or_what_it_has() -> None:
    assert differences({"variants": [GPIPE, ATLAS]}, "gpipe", "atlas")[0] == "schedule atlas against gpipe"
    assert differences(manifest(GPIPE), "gpipe", "atlas") == ()
    assert differences({}, "gpipe", "atlas") == ()


def test_of_many_differences_the_first_are_named_and_the_others_counted() -> None:
    one, other = ({"name": name, **{f"field {n}": name for n in range(8)}} for name in ("a", "b"))
    assert differences(manifest(one, other), "a", "b")[-2:] == ("field 4 b against a", "3 more")


def test_a_long_value_is_cut() -> None:
    one, other = ({"name": name, "text": name * 50} for name in "ab")
    assert differences(manifest(one, other), "a", "b") == (f"text {'b' * 40}... against {'a' * 40}...",)


def test_fields_that_all_variants_have_alike_are_no_columns() -> None:
    fields = variant_fields(manifest(GPIPE, {**ATLAS, "placement": None}), ("gpipe", "atlas", "no such variant"))
    assert fields.columns == ("schedule", "connections", "sharing")
    assert fields.rows == {"gpipe": ("gpipe", "1", "none"), "atlas": ("atlas", "auto", "temporal")}


def test_what_a_variants_training_leaves_out_is_the_experiments() -> None:
    one = {"name": "a", "training": {"stages": None, "pipelines": None}}
    other = {"name": "b", "training": {"stages": 1, "pipelines": 2}}
    document = {"training": {"stages": 4, "pipelines": 2}, "variants": [one, other]}
    assert differences({"experiment": document}, "a", "b") == ("stages 1 against 4",)
