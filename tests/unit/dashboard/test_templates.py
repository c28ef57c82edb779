"""Text from outside cannot add markup to a page or a picture."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import TemplateNotFound, UndefinedError

import asyncrevoke
from asyncrevoke.web.pages import templates
from asyncrevoke.web.pages.templates import Drawing, render

PACKAGE = Path(asyncrevoke.__file__).parent


def written(text: object, template: str = "<i title='{{ text }}'>{{ text }}</i>") -> str:
    return templates._environment().from_string(template).render(text=text)


def test_text_is_escaped_and_made_printable_in_every_expression() -> None:
    assert written('<a href="\n">') == "<i title='{0}'>{0}</i>".format(
        "&lt;a href=&#34;\\n&#34;&gt;"
    )
    assert written(["\x1b", "'"], "{{ text|join('<>') }}") == "\\x1b&lt;&gt;&#39;"
    assert len(written("x" * 5000, "{{ text }}")) < 1100
    assert written("<" * 5000, "{{ text|message }}") == "&lt;" * 5000


@given(st.text(st.characters()))
def test_any_text_becomes_one_line_without_markup(text: str) -> None:
    page = written(text)
    assert page.isprintable()
    assert (page.count("<"), page.count(">"), page.count("'")) == (2, 2, 2)
    drawing = Drawing(1, 1, label=text)
    drawing.add("text", text, text, label=text)
    picture = drawing.__html__()
    assert picture.isprintable()
    assert [element.tag for element in ET.fromstring(picture).iter()][:2] == ["svg", "text"]


def test_a_value_that_a_template_was_not_given_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="'text' is undefined"):
        templates._environment().from_string("{{ text }}").render()
    with pytest.raises(UndefinedError):
        render("audit/results/report.html")
    with pytest.raises(TemplateNotFound):
        render("../conftest.py")


def test_no_template_turns_escaping_off() -> None:
    pages = [page for page in PACKAGE.rglob("*.html") if "{%" in page.read_text()]
    assert len(pages) == 7
    for page in pages:
        text = page.read_text()
        assert "|safe" not in text.replace(" ", "")
        assert "autoescape" not in text
        assert "<script" not in text


def test_a_picture_keeps_attributes_of_any_length() -> None:
    drawing = Drawing(2, 3, class_="lanes", stroke_width=1.25)
    drawing.add("path", d="M1 2" * 5000)
    drawing.add_line([(0, 1), (2.25, 3)], fill="none")
    picture = drawing.__html__()
    assert picture.startswith('<svg viewBox="0 0 2 3" class="lanes" stroke-width="1.2"><path d="M1')
    assert "M1 2" * 5000 in picture
    assert '<polyline points="0.0,1.0 2.2,3.0" fill="none" />' in picture
