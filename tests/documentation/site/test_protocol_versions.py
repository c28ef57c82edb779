"""The page of protocol versions is made of the table in the code."""

from documentation.site.protocol_versions import PAGE, lost, with_versions

from asyncrevoke.client.protocol.dialects.versions import Api, Version


def test_the_versions_of_requests_are_listed_as_in_the_code() -> None:
    assert PAGE.read_text() == with_versions(PAGE), (
        f"{PAGE.name} is behind: run python tests/documentation/site/protocol_versions.py"
    )


def test_versions_that_lack_the_same_stand_together() -> None:
    versions = (Version(9), Version(8, "a"), Version(7, "b"), Version(6, "a"))
    assert lost(Api(0, "x", versions, "y")) == "8 and 6: a<br>7: b"
    assert lost(Api(0, "x", versions[:1], "y")) == "nothing"
