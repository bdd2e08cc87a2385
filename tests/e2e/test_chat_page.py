"""The chat page in a real browser, against a real deployment."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.e2e.running import Running

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]


@pytest.mark.skipif(not CHROMIUM.exists(), reason=f"the chat page: no browser at {CHROMIUM}")
def test_a_person_chats(disaggregated: Running) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page()
        complaints: list[str] = []
        page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(disaggregated.url)
        page.get_by_text("Settings").click()
        page.get_by_label("Longest answer").fill("20")
        for turn in (1, 2):
            page.get_by_label("Your message").fill(f"hello, turn {turn}")
            page.get_by_role("button", name="Send").click()
            answers = page.locator(".message.assistant")
            expect(answers).to_have_count(turn)
            stats = answers.last.locator(".stats")
            expect(stats.locator("[data-stat=TTFT] dd")).to_have_text(re.compile(r"^[\d.]+ m?s$"))
            served = stats.locator("[data-stat='served by'] dd")
            expect(served).to_have_text("prefill-0 → decode-0")
            expect(answers.last.locator(".text")).not_to_be_empty()
        browser.close()
    assert complaints == []
