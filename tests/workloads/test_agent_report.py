"""Tables and the HTML report of an agent benchmark, of runs with known figures."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from tests.workloads.making import record
from workloads.agents.compared import against, pair_ratio, results
from workloads.agents.html_report import section, table_html, turn_pictures, write_html
from workloads.agents.journal import Leg
from workloads.agents.measures import summarise
from workloads.agents.replay import Record, Replay
from workloads.agents.report import Table, comparison_table, remarks, turns_table
from workloads.agents.run import Run
from workloads.agents.slo import Slo


def run(target: str, *records: Record, number: int = 0, wall_s: float = 1.0, **changes: Any) -> Run:
    given: dict[str, Any] = {
        "prefix_cache": None,
        "emptied": True,
        "differences": None,
        "peak_memory_bytes": None,
        "server": {},
        "start_s": None,
    }
    replay = Replay(records, (), wall_s)
    return Run(Leg(target, number), replay=replay, summary=summarise(records), **given | changes)


def cells(table: Table, name: str) -> tuple[str, ...]:
    return next(row for row in table.rows if row[0] == name)[1:]


def wall(each: Run) -> float | None:
    return each.replay.wall_s


def test_ratios_are_the_medians_of_the_rounds_ratios() -> None:
    # The machine was ten times slower in the second round, for both.
    a, b = results(
        [
            run("a", wall_s=1.0),
            run("b", wall_s=3.0),
            run("b", wall_s=40.0, number=1),
            run("a", wall_s=10.0, number=1),
            run("a", wall_s=2.0, number=2),
            run("b", wall_s=10.0, number=2),
        ]
    )
    assert (a.value(wall), b.value(wall)) == (2.0, 10.0)
    assert pair_ratio(wall, b, a) == 4.0


def test_a_ratio_needs_both_values_of_every_round() -> None:
    a, b = results([run("a", record(1)), run("b", record(1, cached_tokens=None))])
    assert pair_ratio(lambda each: each.summary.tokens.hit_rate, b, a) is None
    assert b.value(lambda each: each.summary.tokens.hit_rate) is None


def test_every_target_is_compared_with_the_first_and_the_cache_on_with_off() -> None:
    named = results([run("a"), run("b"), run("c")])
    assert [(x.target, y.target) for x, y in against(named)] == [("b", "a"), ("c", "a")]
    caches = results([run("off"), run("on")])
    assert [(x.target, y.target) for x, y in against(caches)] == [("on", "off")]


def test_the_table_has_a_column_for_each_target_and_each_ratio() -> None:
    found = results(
        [
            run("a", record(2, ttft_s=0.2, prompt_tokens=100, cached_tokens=50), wall_s=2.0),
            run("b", record(2, ttft_s=0.3, prompt_tokens=100, cached_tokens=None), wall_s=1.0),
        ]
    )
    table = comparison_table(found, Slo(ttft_ms=250))
    assert table.header == ("", "a", "b", "b / a")
    assert cells(table, "TTFT p50, warm turns (ms)") == ("200", "300", "1.5")
    assert cells(table, "wall time (s)") == ("2", "1", "0.5")
    assert cells(table, "hit rate (cached / prompt)") == ("0.5", "not told", "-")
    assert cells(table, "share of turns with TTFT <= 250 ms") == ("1", "0", "")
    assert {len(row) for row in table.rows} == {4}


def test_turns_that_only_one_target_answered_are_left_empty_for_the_other() -> None:
    table = turns_table(results([run("a", record(1), record(2)), run("b", record(1))]))
    assert [row[0] for row in table.rows] == ["1", "2"]
    assert table.rows[1][-3:] == ("-", "-", "-")


def test_what_is_said_of_all_runs_is_said_once() -> None:
    lines = remarks([run("a", record(1)), run("b", record(1)), run("b", record(1), emptied=None)])
    assert lines == [
        "all: counters: not told",
        "b: the cache could not be emptied before: no path for it, or not allowed",
    ]


class _Reader(HTMLParser):
    """Whether every element is closed, what is named, and what is fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "br"):
            self.open.append(tag)
        for name, value in attributes:
            if name == "id":
                self.ids.append(str(value))
            if name in ("src", "href", "xlink:href", "data", "action"):
                self.links.append(str(value))

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_report_is_one_whole_page_that_fetches_nothing(tmp_path: Path) -> None:
    found = results(
        [
            run("a", record(1, ttft_s=0.5), record(2, ttft_s=0.1)),
            run("b", record(1, cached_tokens=None), record(2, cached_tokens=None)),
        ]
    )
    parts = [turn_pictures(found), table_html(turns_table(found))]
    page = tmp_path / "r.html"
    sections = [section("Turns", *parts), section("Again", *parts, folded=True)]
    write_html(page, "A <b>title</b>", ["a & b"], sections, {"seed": 0}, {"cores": 2})
    text = page.read_text(encoding="utf-8")
    reader = _Reader()
    reader.feed(text)
    assert reader.open == []
    assert reader.tags.count("svg") == 6
    assert [link for link in reader.links if not link.startswith("#")] == []
    assert not re.search(r"@import|url\((?!#)", text)
    assert "A &lt;b&gt;title&lt;/b&gt;" in text
    assert "a &amp; b" in text
    assert "prefers-color-scheme: dark" in text


def test_pictures_take_the_pages_colours_and_refer_only_to_what_they_define() -> None:
    picture = turn_pictures(results([run("a", record(1), record(2)), run("b", record(1))]))
    assert "var(--c0)" in picture
    assert "var(--c1)" in picture
    assert "currentColor" in picture
    assert "#0072b2" not in picture
    defined = set(re.findall(r'id="([^"]+)"', picture))
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', picture)) <= defined
