"""The bytes that members of a classic group exchange."""

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from asyncrevoke.client.model import TopicPartition
from asyncrevoke.client.protocol.subscription import (
    MalformedMemberData,
    Subscription,
    decode_assignment,
    decode_subscription,
    decode_with_unread_size,
    encode_assignment,
    encode_subscription,
)

ALL_FIELDS = Subscription(
    topics=("a", "b"),
    owned=(TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1)),
    generation=7,
    rack="r1",
    user_data=b"u",
)


def test_each_version_appends_its_field() -> None:
    common = bytes.fromhex("00000002 000161 000162 00000001 75".replace(" ", ""))
    owned = bytes.fromhex(
        "00000002 000161 00000002 00000000 00000002 000162 00000001 00000001".replace(" ", "")
    )
    generation = bytes.fromhex("00000007")
    rack = bytes.fromhex("00027231")
    assert encode_subscription(ALL_FIELDS, 0) == b"\0\0" + common
    assert encode_subscription(ALL_FIELDS, 1) == b"\0\1" + common + owned
    assert encode_subscription(ALL_FIELDS, 2) == b"\0\2" + common + owned + generation
    assert encode_subscription(ALL_FIELDS, 3) == b"\0\3" + common + owned + generation + rack
    assert encode_subscription(ALL_FIELDS) == encode_subscription(ALL_FIELDS, 3)


def test_a_version_that_does_not_exist_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="0 to 3"):
        encode_subscription(ALL_FIELDS, 4)


def test_an_older_version_reads_back_without_the_younger_fields() -> None:
    assert decode_subscription(encode_subscription(ALL_FIELDS, 0)) == Subscription(
        topics=("a", "b"), user_data=b"u"
    )
    assert decode_subscription(encode_subscription(ALL_FIELDS, 1)) == Subscription(
        topics=("a", "b"), owned=ALL_FIELDS.owned, user_data=b"u"
    )
    assert decode_subscription(encode_subscription(ALL_FIELDS, 2)) == Subscription(
        topics=("a", "b"), owned=ALL_FIELDS.owned, generation=7, user_data=b"u"
    )


def test_a_newer_version_is_read_as_the_newest_known() -> None:
    newest = encode_subscription(ALL_FIELDS, 3)
    newer = struct.pack(">h", 9) + newest[2:] + b"fields of the future"
    assert decode_subscription(newer) == ALL_FIELDS


TOPICS = bytes.fromhex("00000001 0006 6f7264657273")
# User data, owned partitions, generation, rack.
NULL, NONE_OWNED, SEVEN, RACK = b"\xff" * 4, bytes(4), b"\0\0\0\7", b"\0\2r1"
ONE_OWNED = bytes.fromhex("00000001 0006 6f7264657273 00000001 00000002")
ORDERS = Subscription(topics=("orders",))
OWNED = Subscription(topics=("orders",), owned=(TopicPartition("orders", 2),))


@pytest.mark.parametrize(
    ("data", "subscription"),
    [
        # kafka-go 0.4.51 and @platformatic/kafka 1.35.0; the second is kafka-go's rack affinity.
        (b"\0\1" + TOPICS + NULL, ORDERS),
        (b"\0\1" + TOPICS + b"\0\0\0\3az1", replace(ORDERS, user_data=b"az1")),
        (b"\0\2" + TOPICS + NULL, ORDERS),
        (b"\0\3" + TOPICS + NULL, ORDERS),
        (b"\0\1" + TOPICS + NULL + NULL, ORDERS),
        (b"\0\2" + TOPICS + NULL + ONE_OWNED, OWNED),
        (b"\0\3" + TOPICS + NULL + ONE_OWNED, OWNED),
        (b"\0\3" + TOPICS + NULL + NULL + SEVEN + RACK, replace(ORDERS, generation=7, rack="r1")),
        (b"\0\3" + TOPICS + NULL + ONE_OWNED + SEVEN, replace(OWNED, generation=7)),
        (b"\0\3" + TOPICS + NULL + ONE_OWNED + SEVEN + b"\xff\xff", replace(OWNED, generation=7)),
    ],
)
def test_missing_last_fields_have_their_defaults(data: bytes, subscription: Subscription) -> None:
    assert decode_with_unread_size(data) == (subscription, 0)


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize(
    "rest",
    [
        b"\0",
        bytes(3),
        b"\0\0\0\2" + ONE_OWNED[4:],
        b"\xff\xff\xff\xfe",
        b"\x7f" * 4,
        ONE_OWNED[:-1],
    ],
)
def test_what_is_not_valid_after_the_user_data_is_left_out_and_counted(
    version: int, rest: bytes
) -> None:
    data = struct.pack(">h", version) + TOPICS + NULL + rest
    assert decode_with_unread_size(data) == (ORDERS, len(rest))


def test_a_rack_that_is_not_valid_leaves_the_fields_before_it() -> None:
    data = b"\0\3" + TOPICS + NULL + ONE_OWNED + SEVEN + b"\0\5r1"
    assert decode_with_unread_size(data) == (replace(OWNED, generation=7), 4)


def test_the_fields_of_a_newer_version_are_not_counted() -> None:
    newer = b"\0\4" + encode_subscription(ALL_FIELDS)[2:] + b"more"
    assert decode_with_unread_size(newer) == (ALL_FIELDS, 0)


def test_an_older_reader_finds_its_fields_at_the_start_of_a_newer_blob() -> None:
    as_read_by_version_1 = b"\0\1" + encode_subscription(ALL_FIELDS, 3)[2:]
    assert decode_subscription(as_read_by_version_1).owned == ALL_FIELDS.owned


def test_topics_and_partitions_are_written_sorted() -> None:
    shuffled = Subscription(topics=("b", "a"), owned=tuple(reversed(ALL_FIELDS.owned)))
    assert decode_subscription(encode_subscription(shuffled)).topics == ("a", "b")
    assert decode_subscription(encode_subscription(shuffled)).owned == ALL_FIELDS.owned


def test_an_assignment_has_the_bytes_of_the_consumer_protocol() -> None:
    written = encode_assignment([TopicPartition("t", 3), TopicPartition("t", 1)], b"x")
    expected = "0003 00000001 000174 00000002 00000001 00000003 ffffffff 78"
    assert written == bytes.fromhex(expected.replace(" ", ""))
    assert decode_assignment(written) == (
        (TopicPartition("t", 1), TopicPartition("t", 3)),
        b"x",
    )


@pytest.mark.parametrize("version", [0, 1, 2, 3, 30])
def test_an_assignment_of_any_version_is_read(version: int) -> None:
    blob = struct.pack(">h", version) + encode_assignment([TopicPartition("t", 1)])[2:]
    assert decode_assignment(blob) == ((TopicPartition("t", 1),), b"")


def test_no_bytes_are_an_assignment_of_nothing() -> None:
    assert decode_assignment(b"") == ((), b"")


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"\0",
        b"\xff\xff" + bytes(8),
        b"\0\1\x7f\xff\xff\xff",
        b"\0\1\xff\xff\xff\xfe" + bytes(20),
        b"\0\0\0\0\0\1\0\1\xff\xff\xff\xff\xff",
    ],
    ids=[
        "empty",
        "half a version",
        "negative version",
        "huge count",
        "negative count",
        "not UTF-8",
    ],
)
def test_a_broken_subscription_is_rejected(blob: bytes) -> None:
    with pytest.raises(MalformedMemberData):
        decode_subscription(blob)


def test_a_negative_partition_is_rejected() -> None:
    blob = bytes.fromhex("0000 00000001 000174 00000001 fffffffe ffffffff".replace(" ", ""))
    with pytest.raises(MalformedMemberData, match="below 0"):
        decode_assignment(blob)


names = st.text(st.characters(codec="utf-8"), max_size=12)
partitions = st.builds(TopicPartition, names, st.integers(0, 2**31 - 1))


@given(
    st.builds(
        Subscription,
        topics=st.lists(names, unique=True).map(sorted).map(tuple),
        owned=st.lists(partitions, unique=True).map(sorted).map(tuple),
        generation=st.integers(-1, 2**31 - 1),
        rack=st.none() | names,
        user_data=st.none() | st.binary(),
    )
)
def test_what_is_written_reads_back(subscription: Subscription) -> None:
    assert decode_subscription(encode_subscription(subscription)) == subscription


@given(st.lists(partitions, unique=True), st.binary())
def test_an_assignment_reads_back(assigned: list[TopicPartition], note: bytes) -> None:
    written = encode_assignment(assigned, note)
    assert decode_assignment(written) == (tuple(sorted(assigned)), note)


@given(st.binary(max_size=60), st.integers(0, 60), st.binary(max_size=8))
def test_arbitrary_bytes_are_read_or_rejected(tail: bytes, cut: int, patch: bytes) -> None:
    valid = encode_subscription(ALL_FIELDS)
    for blob in (b"\0\1" + tail, valid[:cut] + patch + valid[cut + len(patch) :], valid[:cut]):
        with suppress(MalformedMemberData):
            decode_subscription(blob)
        with suppress(MalformedMemberData):
            decode_assignment(blob)
