"""What can be published, and what errors say of what cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from asyncrevoke.client.errors import PublishError
from asyncrevoke.client.producing.encoding import encode_headers

if TYPE_CHECKING:
    from asyncrevoke.client.producing.message import Headers


@pytest.mark.parametrize(
    ("header", "kinds"),
    [
        (("name", {"planted": "content"}), "tuple of str, dict"),
        ((b"planted", b"content"), "tuple of bytes, bytes"),
        (("planted", b"content", 1), "tuple of str, bytes, int"),
        ("planted content", "str"),
    ],
)
def test_an_error_names_the_types_of_a_header_and_not_its_content(
    header: object, kinds: str
) -> None:
    with pytest.raises(PublishError, match=f"a header is a {kinds}: it must be") as raised:
        encode_headers("orders", cast("Headers", [header]))
    assert "planted" not in str(raised.value)
    assert "content" not in str(raised.value)
