"""Every error that the schema can raise has a sentence, whatever stands where."""

from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from monitor.base.records import DEFAULT_TASK
from monitor.base.registry import SOURCES, TASK_KINDS, load
from monitor.config.messages import TEMPLATES, findings, show_path
from monitor.config.root import Config
from monitor.config.section import AnyKind
from tests.config.test_messages import PLACES, SCHEMA, changed
from tests.examples import examples

# What each type of pydantic's core schema can raise in strict mode; its constraints stand apart.
RAISES = {
    "model": {"model_type"},
    "model-fields": {"missing", "extra_forbidden", "invalid_key", "model_attributes_type"},
    "model-field": set(),
    "dict": {"dict_type"},
    "tuple": {"tuple_type"},
    "int": {"int_type"},
    "float": {"float_type", "finite_number"},
    "str": {"string_type", "string_unicode"},
    "bool": {"bool_type"},
    "any": set(),
    "literal": {"literal_error"},
    "tagged-union": {"union_tag_invalid", "union_tag_not_found", "model_attributes_type"},
    "nullable": set(),
    "default": set(),
    "definitions": set(),
    "definition-ref": set(),
    "function-before": {"value_error"},
    "function-after": {"value_error"},
    "function-plain": {"literal_error"},  # monitor.config.section.OneOf
}


CONSTRAINTS = {
    "ge": "greater_than_equal",
    "gt": "greater_than",
    "le": "less_than_equal",
    "lt": "less_than",
}


def raisable(node) -> set[str]:
    errors = set()
    if isinstance(node, list | tuple):
        return errors.union(*map(raisable, node))
    if not isinstance(node, dict):
        return errors
    kind = node.get("type")
    if isinstance(kind, str):
        errors |= RAISES[kind]
        errors |= {error for key, error in CONSTRAINTS.items() if key in node}
        prefix = "string_" if kind == "str" else ""
        errors |= {
            f"{prefix}too_{end}"
            for key, end in (("min_length", "short"), ("max_length", "long"))
            if key in node
        }
    return errors.union(
        *(
            raisable(value)
            for key, value in node.items()
            if key not in ("metadata", "serialization", "function", "default")
        )
    )


def test_every_error_that_the_schema_can_raise_has_its_sentence():
    tables = [AnyKind(SOURCES), AnyKind(TASK_KINDS, DEFAULT_TASK)]  # read when a value is validated
    unions = [table.adapter().core_schema for table in tables]
    entries = [*SOURCES.values(), *TASK_KINDS.values()]
    sections = [load(entry.section).__pydantic_core_schema__ for entry in entries]
    assert raisable([Config.__pydantic_core_schema__, unions, sections]) == set(TEMPLATES)


def refused(data) -> ValidationError | None:
    try:
        Config.model_validate(data)
    except ValidationError as error:
        return error
    return None


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.dates(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=3)
    ),
    max_leaves=5,
)


@examples(200)
@given(place=st.sampled_from(PLACES[1:]), value=ANYTHING)
def test_whatever_stands_anywhere_is_taken_or_told(place, value):
    error = refused(changed(place[0], value))
    if error is not None:
        assert {item["type"] for item in error.errors()} <= set(TEMPLATES)
        assert all(str(finding).startswith(show_path(place[0][:1])) for finding in findings(error, SCHEMA))
