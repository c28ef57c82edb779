"""The page of an AsyncAPI document in a browser without a network, on a phone and on a desk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unit.asyncapi import described_consumer

from asyncrevoke.web.asyncapi.page import page

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.async_api import Browser


@pytest.mark.parametrize("width", [390, 1280])
async def test_the_page_is_readable_offline(
    browser: Browser, pictures: Path, tmp_path: Path, width: int
) -> None:
    written = tmp_path / "asyncapi.html"
    written.write_text(page(described_consumer.consumer.asyncapi(title="Billing")), "utf-8")
    context = await browser.new_context(viewport={"width": width, "height": 900}, offline=True)
    view = await context.new_page()
    requests: list[str] = []
    problems: list[str] = []
    view.on("request", lambda request: requests.append(request.url))
    view.on("console", lambda message: problems.append(message.text))
    await view.goto(written.as_uri())
    assert await view.evaluate("document.documentElement.scrollWidth") <= width
    await view.get_by_role("link", name="Line").first.click()
    heading = view.get_by_role("heading", name="Line", exact=True).last
    assert await heading.is_visible()
    assert {url.partition("#")[0] for url in requests} == {written.as_uri()}
    assert problems == []
    await view.screenshot(path=pictures / f"asyncapi-{width}.png", full_page=True)
    await context.close()
