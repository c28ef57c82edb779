"""What the site shows of a page: its code, no comment, and links that lead somewhere."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

ROOT = Path(__file__).parents[3]
ADDRESS = "https://example.org/project"

spec = spec_from_file_location("site_hooks", ROOT / "docs" / "site" / "hooks.py")
assert spec is not None
assert spec.loader is not None
hooks = module_from_spec(spec)
spec.loader.exec_module(hooks)


def prepared(markdown: str, place: str = "how-to/testing.md", address: str | None = None) -> str:
    result: str = hooks.prepare(markdown, place, address)
    return result


def test_invisible_blocks_and_marks_of_generated_parts_are_removed() -> None:
    page = (
        "Text.\n\n<!-- invisible-code-block: python\npage.topic('orders')\n"
        '"""\n```\n"""\n-->\n\n```python\nshown\n```\n<!-- skip: end -->\nEnd.\n'
    )
    assert prepared(page) == "Text.\n\n\n```python\nshown\n```\nEnd.\n"


def test_a_comment_inside_of_a_code_block_is_code() -> None:
    page = "````markdown\n<!-- shown -->\n```python\n[x](../../LICENSE)\n```\n````\n"
    assert prepared(page) == page


def test_a_link_within_the_docs_stays() -> None:
    page = "[one](../reference/errors.md#config) [two](#here) [three](https://kafka.apache.org)"
    assert prepared(page) == page


def test_a_link_to_a_page_of_the_project_leads_to_its_page_of_the_site() -> None:
    assert prepared("[how](../CONTRIBUTING.md#set-up)", "index.md") == (
        "[how](project/contributing.md#set-up)"
    )


def test_a_page_of_the_project_links_pages_of_the_docs_and_each_other() -> None:
    page = "[a](docs/reference/errors.md#x) [b](SECURITY.md)"
    assert (
        prepared(page, "project/changelog.md") == "[a](../reference/errors.md#x) [b](security.md)"
    )


def test_a_link_to_another_file_leads_to_the_repository() -> None:
    page = "[`file`](../../examples/billing.py) [folder](../../examples)"
    assert prepared(page, address=ADDRESS) == (
        f"[`file`]({ADDRESS}/blob/main/examples/billing.py) [folder]({ADDRESS}/tree/main/examples)"
    )


def test_a_link_to_another_file_is_text_where_no_address_is_known() -> None:
    assert prepared("see [the `file`](../../examples/billing.py).") == "see the `file`."


def test_cells_of_a_table_of_sentences_name_their_columns() -> None:
    long = "a sentence " * 6
    head = "<table>\n<thead>\n<tr>\n<th>who</th>\n<th><code>a</code> &lt; b</th>\n</tr>\n</thead>\n"
    row = f"<tbody>\n<tr>\n<td>x</td>\n<td>{long}</td>\n</tr>\n</tbody>\n</table>"
    assert hooks.with_labelled_cells(head + row) == (
        head.replace("<table>", '<table data-sentences="">')
        + f'<tbody>\n<tr>\n<td data-label="who">x</td>\n<td data-label="a &lt; b">{long}</td>\n'
        "</tr>\n</tbody>\n</table>"
    )


def test_a_table_of_words_and_numbers_stays_as_it_is() -> None:
    table = "<table>\n<tbody>\n<tr>\n<td>1</td>\n</tr>\n</tbody>\n</table>"
    assert hooks.with_labelled_cells(table) == table
