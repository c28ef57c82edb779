"""Schemas of types: by their own generators, and in the draft of JSON Schema that AsyncAPI has."""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

import msgspec
import pydantic

from asyncrevoke.handlers.asyncapi.json_schemas import JsonSchemas


class Leaf(msgspec.Struct):
    number: int


class Other(pydantic.BaseModel):
    kind: Literal["other"] = "other"


class Tree(pydantic.BaseModel):
    kind: Literal["tree"] = "tree"
    child: Annotated[Tree | Other | None, pydantic.Field(description="The one below.")] = None
    either: Annotated[Tree | Other, pydantic.Field(discriminator="kind")] = Other()


def test_a_tuple_has_the_items_of_draft_7() -> None:
    assert JsonSchemas().of(tuple[int, str], "validation") == {
        "type": "array",
        "minItems": 2,
        "maxItems": 2,
        "items": [{"type": "integer"}, {"type": "string"}],
        "additionalItems": False,
    }


def test_a_type_that_refers_to_itself_becomes_a_component_without_discriminators() -> None:
    schemas = JsonSchemas()
    assert schemas.of(Tree, "validation") == {"$ref": "#/components/schemas/Tree"}
    assert set(schemas.components) == {"Tree", "Other"}
    properties = cast("dict[str, Any]", schemas.components["Tree"]["properties"])
    assert "discriminator" not in properties["either"]
    assert properties["either"]["oneOf"] == [
        {"$ref": "#/components/schemas/Tree"},
        {"$ref": "#/components/schemas/Other"},
    ]


def test_fields_and_data_that_are_named_like_keywords_are_kept() -> None:
    kind = msgspec.defstruct("Odd", [("discriminator", int), ("prefixItems", int)])
    data = {"default": {"$ref": "x", "discriminator": 1}}
    marked = cast("Any", Annotated)[kind, msgspec.Meta(extra_json_schema=data)]
    schemas = JsonSchemas()
    found = schemas.of(marked, "validation")
    assert found["default"] == {"$ref": "x", "discriminator": 1}
    assert found["allOf"] == [{"$ref": "#/components/schemas/Odd"}]
    assert set(cast("dict[str, Any]", schemas.components["Odd"]["properties"])) == {
        *("discriminator", "prefixItems"),
    }


def test_different_types_with_one_name_are_two_components() -> None:
    same = msgspec.defstruct("Leaf", [("number", int)])
    other = msgspec.defstruct("Leaf", [("text", str)])
    holder = msgspec.defstruct("Holder", [("leaf", other)])
    schemas = JsonSchemas()
    assert schemas.of(Leaf, "validation") == {"$ref": "#/components/schemas/Leaf"}
    assert schemas.of(same, "serialization") == {"$ref": "#/components/schemas/Leaf"}
    assert schemas.of(holder, "validation") == {"$ref": "#/components/schemas/Holder"}
    of_holder = cast("dict[str, Any]", schemas.components["Holder"]["properties"])
    assert of_holder["leaf"] == {"$ref": "#/components/schemas/Leaf_2"}


def test_a_type_is_another_component_if_only_what_it_refers_to_differs() -> None:
    def holder(kind: type) -> Any:
        return msgspec.defstruct("Holder", [("leaf", msgspec.defstruct("Leaf", [("of", kind)]))])

    schemas = JsonSchemas()
    first, second = (schemas.of(holder(kind), "validation") for kind in (int, str))
    assert (first, second) == (
        {"$ref": "#/components/schemas/Holder"},
        {"$ref": "#/components/schemas/Holder_2"},
    )
    of_second = cast("dict[str, Any]", schemas.components["Holder_2"]["properties"])
    assert of_second["leaf"] == {"$ref": "#/components/schemas/Leaf_2"}


def test_pydantic_reads_aliases_and_writes_names() -> None:
    class Payment(pydantic.BaseModel):
        id: int = pydantic.Field(alias="paymentId")

    class Aliased(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(serialize_by_alias=True)
        id: int = pydantic.Field(alias="paymentId")

    schemas = JsonSchemas()
    for kind, mode, name in (
        (Payment, "validation", "paymentId"),
        (Payment, "serialization", "id"),
        (Aliased, "serialization", "paymentId"),
    ):
        reference = schemas.of(kind, cast("Any", mode))
        component = str(reference["$ref"]).rpartition("/")[2]
        assert schemas.components[component]["required"] == [name]
    written = Payment(paymentId=1).model_dump_json(), Aliased(paymentId=1).model_dump_json()
    assert written == ('{"id":1}', '{"paymentId":1}')


def test_a_type_that_has_no_schema_is_named() -> None:
    class Unknown: ...

    found = JsonSchemas().of(Unknown, "serialization")
    assert found == {"description": "A value of the type Unknown."}
