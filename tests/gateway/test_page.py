"""The chat page in a real browser."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

from tests.gateway.conftest import Gateway, StartGateway
from tests.gateway.fake_deployment import EOS, text_tokens, token_text
from wire.messages import RefusalKind

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
]
needs_browser = pytest.mark.skipif(
    not CHROMIUM.exists(), reason=f"the chat page: no browser at {CHROMIUM}"
)


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        await browser.close()


async def open_page(browser: Browser, gateway: Gateway) -> tuple[Page, list[str]]:
    """The page, and what it complained about (a policy's refusal is among it)."""
    page = await browser.new_page()
    page.set_default_timeout(10_000)
    complaints: list[str] = []
    page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    await page.goto(gateway.url)
    return page, complaints


async def ask(page: Page, text: str) -> None:
    await page.get_by_label("Your message").fill(text)
    await page.get_by_role("button", name="Send").click()


@needs_browser
async def test_a_conversation(gateway: Gateway, browser: Browser) -> None:
    page, complaints = await open_page(browser, gateway)
    await expect(page.locator("#model")).to_have_text("org/fake-1b")
    await ask(page, "hello there")
    answer = page.locator(".message.assistant").first
    await expect(answer.locator(".text")).to_have_text("Hello, world.")
    stats = answer.locator(".stats")
    await expect(stats.locator("[data-stat=TTFT] dd")).to_have_text(re.compile(r"^[\d.]+ ms$"))
    await expect(stats.locator("[data-stat=TPOT] dd")).to_have_text(re.compile(r"^[\d.]+ ms$"))
    await expect(stats.locator("[data-stat=tokens] dd")).to_have_text(re.compile(r"^\d+ → 14$"))
    await expect(stats.locator("[data-stat='served by'] dd")).to_have_text("prefill-0 → decode-0")
    await page.get_by_text("Settings").click()
    await page.get_by_label("System prompt").fill("be brief")
    await page.get_by_label("Temperature").fill("0.25")
    await page.get_by_label("Longest answer").fill("9")
    await page.get_by_label("Your message").fill("and again")
    await page.get_by_label("Your message").press("Enter")
    await expect(page.locator(".message.assistant")).to_have_count(2)
    await expect(page.locator(".message.assistant").last).to_contain_text("cut off")
    request = gateway.deployment.submits[1].request
    assert token_text(request.prompt) == (
        "system\nbe brief\nuser\nhello there\nassistant\nHello, world.\n"
        "user\nand again\nassistant\n"
    )
    assert (request.sampling.temperature, request.sampling.max_tokens) == (0.25, 9)
    await page.get_by_role("button", name="New chat").click()
    await expect(page.locator(".message")).to_have_count(0)
    assert complaints == []


@needs_browser
async def test_text_streams_and_stops_on_demand(gateway: Gateway, browser: Browser) -> None:
    gateway.deployment.hold_at = 5
    page, complaints = await open_page(browser, gateway)
    await ask(page, "hello there")
    answer = page.locator(".message.assistant")
    await expect(answer.locator(".text")).to_have_text("Hello")
    await page.get_by_role("button", name="Stop").click()
    await expect(answer).to_contain_text("Stopped.")
    await expect(page.get_by_role("button", name="Send")).to_be_visible()
    await gateway.deployment.until(lambda: len(gateway.deployment.cancels) == 2)
    assert complaints == []


@needs_browser
async def test_an_answer_is_text_whatever_it_says(gateway: Gateway, browser: Browser) -> None:
    evil = "<img src=x onerror=\"document.title='owned'\"><b>bold</b>"
    gateway.deployment.script = lambda _: [*text_tokens(evil), EOS]
    page, complaints = await open_page(browser, gateway)
    await ask(page, evil)
    for role in ("user", "assistant"):
        await expect(page.locator(f".message.{role} .text")).to_have_text(evil)
    assert await page.title() == "baton chat"
    assert await page.locator(".message img, .message b").count() == 0
    assert complaints == []


@needs_browser
async def test_errors_are_shown_and_the_question_is_kept(
    gateway: Gateway, browser: Browser
) -> None:
    gateway.deployment.refusal = (RefusalKind.OVERLOADED, "Come back later.", 1.0)
    page, _ = await open_page(browser, gateway)
    await ask(page, "hello there")
    await expect(page.get_by_role("alert")).to_have_text("Come back later.")
    await expect(page.get_by_label("Your message")).to_have_value("hello there")
    gateway.deployment.refusal = None
    await page.get_by_role("button", name="Send").click()
    await expect(page.locator(".message.assistant .text").last).to_have_text("Hello, world.")
    assert token_text(gateway.deployment.submits[0].request.prompt).count("user") == 1


@needs_browser
async def test_a_key_is_asked_for(start_gateway: StartGateway, browser: Browser) -> None:
    gateway = await start_gateway(api_key="open sesame")
    page, _ = await open_page(browser, gateway)
    key = page.get_by_label("Key", exact=True)
    await key.fill("wrong")
    await page.get_by_role("button", name="Use it").click()
    await expect(page.locator("#key-error")).to_contain_text("API key is needed")
    await key.fill("open sesame")
    await page.get_by_role("button", name="Use it").click()
    await expect(page.locator("#model")).to_have_text("org/fake-1b")
    await ask(page, "hello there")
    await expect(page.locator(".message.assistant .text")).to_have_text("Hello, world.")
