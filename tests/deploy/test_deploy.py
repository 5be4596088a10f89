"""The dashboard and the alerts ask for what the server exports, and nothing else."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from server.metrics.catalogue import ALL, Metric

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
# Prometheus' client exports these of each process.
PROCESS = {"process_resident_memory_bytes"}
# Labels that Prometheus adds to what it scrapes, and that of histograms.
ADDED = {"instance", "job", "le"}
NAME = re.compile(r"\b(?:radix|process)_\w+")
SELECTOR = re.compile(r"\b((?:radix|process)_\w+)(?:\{([^}]*)\})?")
GROUPING = re.compile(r"\b(?:by|on|without)\s*\(([^)]*)\)")
# Of Grafana; each is in its list of units.
UNITS = {"short", "percentunit", "s", "bytes", "reqps"}


def alerts() -> list[dict[str, Any]]:
    yaml: Any = importlib.import_module("yaml")
    text = (DEPLOY / "prometheus-alerts.yaml").read_text()
    (group,) = yaml.safe_load(text)["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def expressions() -> list[str]:
    targets = [target["expr"] for panel in PANELS for target in panel["targets"]]
    return targets + [rule["expr"] for rule in alerts()]


def series_of(metric: Metric) -> set[str]:
    """The names that Prometheus knows it by."""
    if metric.kind == "histogram":
        return {metric.full_name + end for end in ("_bucket", "_sum", "_count")}
    return {metric.shown_name}


SERIES = {name: metric for metric in ALL for name in series_of(metric)}


@pytest.mark.parametrize("expression", expressions())
def test_each_name_and_label_is_exported(expression: str) -> None:
    used = set(NAME.findall(expression))
    assert used
    assert used <= SERIES.keys() | PROCESS
    labels = {label for name in used & SERIES.keys() for label in SERIES[name].labels}
    for name, selected in SELECTOR.findall(expression):
        known = set(SERIES[name].labels) if name in SERIES else set()
        asked = set(re.findall(r"(\w+)\s*[=!]~?", selected))
        assert asked <= known | ADDED
    for group in GROUPING.findall(expression):
        asked = {label.strip() for label in group.split(",")} - {""}
        assert asked <= labels | ADDED


@pytest.mark.parametrize("expression", expressions())
def test_counters_are_asked_for_their_rate_and_gauges_are_not(expression: str) -> None:
    rates = set(re.findall(r"(?:rate|increase)\((\w+)", expression))
    for name in set(NAME.findall(expression)) & SERIES.keys():
        assert (name in rates) == (SERIES[name].kind in ("counter", "histogram"))
    assert expression.count("(") == expression.count(")")
    assert expression.count("{") == expression.count("}")


def test_the_dashboard_shows_what_an_operator_looks_for() -> None:
    shown = {
        name for panel in PANELS for each in panel["targets"] for name in NAME.findall(each["expr"])
    }
    for name in (
        "radix_cached_tokens_total",
        "radix_missed_tokens_total",
        "radix_near_miss_tokens_total",
        "radix_kv_blocks",
        "radix_preemptions_total",
        "radix_waiting_requests",
        "radix_time_to_first_token_seconds_bucket",
        "radix_step_seconds_total",
        "radix_ready",
    ):
        assert name in shown


def test_the_dashboard_is_whole() -> None:
    assert DASHBOARD["uid"] == "radix-engine"
    assert DASHBOARD["schemaVersion"] >= 39
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    variables = {each["name"] for each in DASHBOARD["templating"]["list"]}
    assert variables == {"datasource", "job", "instance"}
    text = json.dumps(DASHBOARD)
    known = {*variables, "__rate_interval", "__all"}
    assert set(re.findall(r"\$\{?(\w+)", text)) <= known


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_each_panel_has_a_place_a_unit_and_a_legend(panel: dict[str, Any]) -> None:
    assert panel["type"] in ("timeseries", "stat")
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    place = panel["gridPos"]
    assert 0 <= place["x"] < place["x"] + place["w"] <= 24
    assert [each["refId"] for each in panel["targets"]] == list("ABC"[: len(panel["targets"])])
    for target in panel["targets"]:
        assert target["datasource"]["uid"] == "${datasource}"
        assert target["legendFormat"]
        for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
            assert re.search(rf"by \([^)]*\b{label}\b", target["expr"]) or label == "instance"


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        taken |= cells


def test_each_alert_says_what_is_wrong() -> None:
    names = [rule["alert"] for rule in alerts()]
    assert len(set(names)) == len(names)
    for rule in alerts():
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"\d+m", rule["for"])
        assert rule["labels"] == {"severity": rule["labels"]["severity"]}
        assert rule["labels"]["severity"] in ("warning", "critical")
        summary = rule["annotations"]["summary"]
        assert "{{ $labels.instance }}" in summary
        for label in re.findall(r"\$labels\.(\w+)", summary):
            assert label == "instance" or re.search(rf"by \([^)]*\b{label}\b", rule["expr"])
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in names)


def test_the_refusals_that_are_watched_are_codes_of_the_server() -> None:
    (expression,) = [rule["expr"] for rule in alerts() if rule["alert"] == "RadixRefuses"]
    (pattern,) = re.findall(r'code=~"([^"]+)"', expression)
    sources = "".join(
        path.read_text(encoding="utf-8") for path in sorted((ROOT / "server").rglob("*.py"))
    )
    codes = set(re.findall(r'code="(\w+)"', sources))
    watched = {code for code in codes if re.fullmatch(pattern, code)}
    assert watched == {"queue_full", "tenant_queue_full", "tenant_in_flight_limit"}
