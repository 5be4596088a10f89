"""The debug page in a browser: what a reader sees, and what pointer and keys do."""

from __future__ import annotations

import re
import time
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from server import Engine, GenerationParams
from tests.browser.conftest import SYSTEM, Watched, watch
from tests.server_http.keys import ACME, OPERATOR

ROW = 26


def live(watched: Watched) -> Page:
    expect(watched.page.locator("#status")).to_have_text("Live")
    return watched.page


def point_at(page: Page, row: int, share: float = 0.02) -> None:
    """Move the pointer over a row of the tree, so far from its left."""
    box = page.locator("#icicle").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + share * box["width"], box["y"] + ROW * row + ROW / 2)


def table_rows(page: Page) -> list[list[str]]:
    """The tree as the table has it."""
    if page.locator("#table").is_hidden():
        page.click("#as-table")
    rows: list[list[str]] = page.eval_on_selector_all(
        "#table tbody tr", "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
    )
    return rows


def test_an_empty_server_says_that_nothing_is_stored(watched: Watched) -> None:
    page = live(watched)
    expect(page.locator("#nothing")).to_be_visible()
    expect(page.locator("#model")).to_contain_text("tiny")
    expect(page.locator("#figures")).to_contain_text("Running")


def test_a_request_appears_in_the_tree_within_two_seconds(watched: Watched) -> None:
    page = live(watched)
    name = watched.chat("Where is the station?")
    began = time.monotonic()
    expect(page.locator("#nothing")).to_be_hidden(timeout=2000)
    expect(page.locator("#requests tbody tr").first).to_contain_text(name[:12], timeout=3000)
    assert time.monotonic() - began < 5
    expect(page.locator("#requests tbody tr").first).to_contain_text("never stored at token 0")


def test_pointing_at_a_bar_shows_its_text_and_numbers(watched: Watched) -> None:
    page = live(watched)
    watched.chat("Where is the station?")
    watched.chat("<img src=x onerror=alert(1)> is what I typed.")
    expect(page.locator("#nothing")).to_be_hidden()
    page.wait_for_function("document.querySelector('#figures')?.textContent.includes('%')")
    point_at(page, 2)
    details = page.locator("#details")
    expect(details).to_contain_text("You are a careful assistant")
    expect(details).to_contain_text("Hits")
    expect(details).to_contain_text(re.compile("Tokens.*from 0"))
    point_at(page, 0)
    expect(details).to_contain_text("All namespaces")


def test_text_of_prompts_is_never_markup(watched: Watched) -> None:
    page = live(watched)
    name = watched.chat("Hi", system="<b>x</b><img src=x onerror=alert(1)>")
    expect(page.locator("#nothing")).to_be_hidden()
    point_at(page, 2)
    expect(page.locator("#details")).to_contain_text("<b>x</b>")
    table_rows(page)
    page.fill("#prompt", "<img src=x onerror=alert(2)> and <script>alert(3)</script>")
    page.click("#explain button.main")
    expect(page.locator("#explanation .verdict")).to_be_visible()
    page.get_by_role("button", name=name[:12]).first.click()
    expect(page.locator("#life")).to_contain_text("first token")
    assert page.locator("main img, main script, main b").count() == 0


def test_search_finds_a_prompt_by_its_text(watched: Watched) -> None:
    page = live(watched)
    watched.chat("Where is the station?", system="An ostrich cannot fly, but it runs very fast.")
    watched.chat("Where is the station?", system="Bees find flowers by dances of other bees, too.")
    expect(page.locator("#nothing")).to_be_hidden()
    page.fill("#search", "OSTRICH")
    expect(page.locator("#found")).to_have_text("1 found")
    page.press("#search", "Enter")
    expect(page.locator("#details")).to_contain_text("An ostrich")
    page.fill("#search", "no such words")
    expect(page.locator("#found")).to_have_text("0 found")


def test_a_click_zooms_in_and_crumbs_and_keys_zoom_out(watched: Watched) -> None:
    page = live(watched)
    watched.chat("Where is the station?")
    watched.chat("Where is the airport?", "In the north.", "And the harbour?")
    expect(page.locator("#nothing")).to_be_hidden()
    crumbs = page.locator("#crumbs > :not([aria-hidden])")
    expect(crumbs).to_have_count(1)
    point_at(page, 2)
    page.mouse.down()
    page.mouse.up()
    expect(crumbs).to_have_count(3)
    expect(crumbs.last).to_contain_text("You are a careful")
    page.locator("#icicle").focus()
    page.keyboard.press("Backspace")
    expect(crumbs).to_have_count(2)
    page.keyboard.press("Escape")
    expect(crumbs).to_have_count(1)
    for pressed in ("Home", "ArrowDown", "ArrowDown"):
        page.keyboard.press(pressed)
    expect(page.locator("#details")).to_contain_text("You are a careful")
    page.keyboard.press("Enter")
    expect(crumbs).to_have_count(3)
    page.get_by_role("button", name="All namespaces").click()
    expect(crumbs).to_have_count(1)


def test_zooming_in_asks_the_server_for_more_of_that_part(watched: Watched, engine: Engine) -> None:
    prompts = [
        [base] * 16 + [60 + n // 30, 60 + n % 30] * 8 for base in (50, 51) for n in range(400)
    ]
    engine.generate(prompts, GenerationParams(1))
    page = live(watched)
    icicle = page.locator("#icicle")
    expect(icicle).to_have_attribute("aria-label", re.compile("500 of them"))
    assert not any("root=" in each for each in watched.asked)
    page.fill("#search", "2222222222")  # the head that was used less lately
    page.press("#search", "Enter")
    icicle.focus()
    page.keyboard.press("Enter")
    # Besides what was known of the other head: all 400 that are below this one.
    expect(icicle).to_have_attribute("aria-label", re.compile(r"\b([678]\d\d) of them"))
    assert any("root=" in each for each in watched.asked)
    page.get_by_role("button", name="All namespaces").click()
    expect(icicle).to_have_attribute("aria-label", re.compile("500 of them"))


def test_near_misses_are_told_with_place_cost_and_remedy(watched: Watched) -> None:
    page = live(watched)
    expect(page.locator("#near-misses")).to_contain_text("None so far")
    for minute in range(10, 15):
        watched.chat("Where is the station?", system=f"It is 09:{minute} now. {SYSTEM * 4}")
    told = page.locator("#near-misses li")
    expect(told).to_have_count(1, timeout=9000)
    expect(told).to_contain_text("a time")
    expect(told).to_contain_text(
        re.compile(r"In message 0 \(system\), characters 6 to 11, at token")
    )
    expect(told).to_contain_text(re.compile(r"costs \d{3} tokens a prompt"))
    expect(told).to_contain_text("leave the time out, round it")
    expect(told.locator("mark.prompt")).to_have_text(re.compile("09:1[234]"))
    expect(page.locator("#near-count")).to_have_text("1")
    page.locator("#near-title").scroll_into_view_if_needed()
    watched.shot("near-misses")


def test_the_table_has_the_same_as_the_chart(watched: Watched) -> None:
    page = live(watched)
    watched.chat("Where is the station?")
    watched.chat("Where is the airport?")
    expect(page.locator("#nothing")).to_be_hidden()
    page.wait_for_timeout(1500)
    depths, texts = zip(*[(row[0], row[1]) for row in table_rows(page)], strict=True)
    assert depths[:3] == ("0", "1", "2")
    assert texts[0] == "All namespaces"
    assert "You are a careful assistant" in texts[2]
    assert list(depths).count("3") == 2


def test_explaining_a_prompt_shows_both_sides_of_the_parting(watched: Watched) -> None:
    page = live(watched)
    watched.chat("Where is the station?", system=SYSTEM + "It is 10:31 now, on a Monday in May.")
    body = (
        '{"messages": [{"role": "system", "content": "%s"}, {"role": "user", "content": "Hi"}]}'
        % (SYSTEM + "It is 10:57 now, on a Monday in May.")
    )
    page.fill("#prompt", body)
    page.click("#explain button.main")
    told = page.locator("#explanation")
    expect(told.locator(".verdict")).to_contain_text("in message 0 (system)")
    expect(told.locator("mark.prompt")).to_contain_text("57 now")
    expect(told.locator("mark.stored")).to_contain_text("31 now")
    expect(told.locator(".key")).to_contain_text("cached:")
    watched.shot("explain")


def test_a_recent_requests_life_and_reason_are_a_click_away(watched: Watched) -> None:
    page = live(watched)
    watched.chat("Where is the station?")
    name = watched.chat("Where is the airport?")
    page.get_by_role("button", name=name[:14]).first.click()
    life = page.locator("#life")
    expect(life).to_contain_text("matched")
    expect(life).to_contain_text("tokens computed")
    life.get_by_role("button", name="Explain").click()
    expect(page.locator("#explanation .verdict")).to_contain_text("leaves what is stored")
    expect(page.locator("#explanation mark.prompt")).to_contain_text("airport")


def test_a_refused_request_says_why(watched: Watched) -> None:
    page = live(watched)
    body = {"prompt": "Hello", "n": -1}
    told = httpx.post(f"{watched.url}/v1/completions", json=body)
    assert told.status_code == 400
    first = page.locator("#requests tbody tr").first
    expect(first.locator(".badge.failed")).to_have_text("400", timeout=10_000)
    expect(first).to_contain_text("n should be greater than or equal to 1")


def test_the_theme_follows_the_system_and_the_switch(watched: Watched) -> None:
    page = live(watched)
    watched.chat("Where is the station?")

    def background() -> str:
        found: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return found

    light = background()
    page.emulate_media(color_scheme="dark")
    page.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    dark = background()
    assert dark != light
    watched.shot("dark")
    is_light = "light => getComputedStyle(document.body).backgroundColor === light"
    page.select_option("#theme", "light")
    page.wait_for_function(is_light, arg=light)
    page.reload()
    page.wait_for_function(is_light, arg=light)
    page.select_option("#theme", "auto")


@pytest.mark.parametrize("width", [390, 820, 1360])
def test_nothing_is_cut_off_at_any_width(watched: Watched, width: int) -> None:
    page = live(watched)
    watched.chat("Where is the station?")
    page.set_viewport_size({"width": width, "height": 900})
    page.wait_for_timeout(1200)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    watched.shot(f"width-{width}")


def test_every_control_has_a_name_and_a_visible_focus(watched: Watched) -> None:
    page = live(watched)
    nameless = page.eval_on_selector_all(
        "button, select, input, textarea, canvas[role]",
        """all => all.filter(each => !(each.getAttribute('aria-label') || each.labels?.length
               || each.textContent.trim())).map(each => each.id)""",
    )
    assert nameless == []
    seen = []
    for _ in range(10):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert seen[:7] == ["skip", "pause", "key", "theme", "colour", "search", "as-table"]
    assert "icicle" in seen


def test_drawing_is_quick(watched: Watched, engine: Engine) -> None:
    prompts = [[60 + n % 7] * 16 + [40 + n] * (16 + 16 * (n % 3)) for n in range(60)]
    engine.generate(prompts, GenerationParams(1))
    page = live(watched)
    page.wait_for_timeout(2500)
    took: dict[str, Any] = page.evaluate("({...document.documentElement.dataset})")
    assert float(took["drawMs"]) < 100


def test_the_key_is_asked_for_and_kept_in_this_tab_only(browser: Browser, guarded: str) -> None:
    for watched in watch(browser, guarded, expects=("401", "403")):
        page = watched.page
        dialog = page.locator("#key-dialog")
        expect(dialog).to_be_visible()
        page.fill("#key-value", ACME)
        dialog.get_by_role("button", name="Use").click()
        expect(page.locator("#problem")).to_contain_text("for operators")
        expect(dialog).to_be_visible()
        page.fill("#key-value", OPERATOR)
        dialog.get_by_role("button", name="Use").click()
        expect(page.locator("#status")).to_have_text("Live")
        expect(page.locator("#problem")).to_be_hidden()
        page.reload()
        expect(page.locator("#status")).to_have_text("Live")
        assert OPERATOR not in page.evaluate("JSON.stringify(localStorage) + document.cookie")
        assert not any(OPERATOR in each for each in watched.asked)
