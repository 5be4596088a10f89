"""What /metrics exports: named by the rules, listed in the documents, in the format asked for."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from server.http.settings import HttpSettings
from server.metrics import RequestMetrics
from server.metrics.buckets import Buckets
from server.metrics.catalogue import ALL, Metric
from tests.server_http.keys import ACME, BETA, OPERATOR, bearer, ring
from tests.server_http.running import Running, running_server
from tests.server_http.scripted import TIMEOUT_S

ROOT = Path(__file__).parents[2]
OPENMETRICS = "application/openmetrics-text"
UNITS = ("seconds", "bytes", "tokens", "blocks", "ratio", "requests")
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


def families(server: Running) -> dict[str, Family]:
    """By name, without the process's own."""
    response = server.client.get("/metrics", headers={"Accept": OPENMETRICS})
    parsed = openmetrics(response.text)  # type: ignore[no-untyped-call]
    found = {family.name: family for family in parsed}
    return {name: each for name, each in found.items() if not name.startswith("process_")}


def value(server: Running, name: str, **labels: str) -> float:
    """That of one sample."""
    samples = [sample for family in families(server).values() for sample in family.samples]
    (found,) = [each for each in samples if (each.name, each.labels) == (name, labels)]
    return float(found.value)


def wait_until_ended(server: Running) -> None:
    """A stream's end is counted a moment after its client has seen it."""
    end = time.monotonic() + TIMEOUT_S
    while value(server, "radix_open_requests"):
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: metric.name)
def test_a_name_follows_the_rules(metric: Metric) -> None:
    assert re.fullmatch(r"radix_[a-z]+(_[a-z]+)*", metric.full_name)
    reserved = ("total", "count", "sum", "bucket", "created", "info")
    assert metric.full_name.split("_")[-1] not in reserved
    assert metric.unit in ("", *UNITS)
    assert not metric.unit or metric.full_name.endswith("_" + metric.unit)
    named = [unit for unit in UNITS[:-1] if metric.full_name.endswith("_" + unit)]
    assert named == ([metric.unit] if metric.unit in UNITS[:-1] else [])
    assert metric.meaning.endswith(".")
    for label in metric.labels:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", label)
        assert label not in ("le", "quantile")
    assert metric.kind != "counter" or metric.shown_name.endswith("_total")


def test_what_is_exported_is_what_the_catalogue_says(server: Running) -> None:
    server.post(COMPLETIONS, {"prompt": "x"})
    server.post(COMPLETIONS, {"prompt": ""})
    known = {metric.full_name: metric for metric in ALL}
    for name, family in families(server).items():
        metric = known[name]
        assert (family.type, family.unit) == (metric.kind, metric.unit)
        assert family.documentation == metric.meaning
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(metric.labels)


def test_the_documents_list_every_metric_with_its_unit_and_meaning_and_no_other() -> None:
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| `radix_")]
    wanted = []
    for metric in ALL:
        labels = f"{{{', '.join(metric.labels)}}}" if metric.labels else ""
        name = f"`{metric.shown_name}{labels}`"
        wanted.append(f"| {name} | {metric.kind} | {metric.unit or '-'} | {metric.meaning} |")
    assert rows == wanted


def test_the_format_is_the_one_that_is_asked_for(server: Running) -> None:
    plain = server.client.get("/metrics")
    assert plain.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert not plain.text.endswith("# EOF\n")
    asked = server.client.get("/metrics", headers={"Accept": f"{OPENMETRICS}; version=1.0.0, */*"})
    assert asked.headers["content-type"].startswith(f"{OPENMETRICS}; version=1.0.0")
    assert asked.text.endswith("# EOF\n")
    names = {family.name for family in prometheus(plain.text)}
    assert {"radix_prompt_tokens", "radix_kv_blocks", "process_resident_memory_bytes"} <= names
    assert "\nradix_prompt_tokens_total " in plain.text


def test_requests_are_counted_by_what_came_of_them() -> None:
    with running_server() as server:
        for prompt in ("one", "two", "two", "please fail", "", "x" * 300):
            server.post(COMPLETIONS, {"prompt": prompt})
        connection = server.send(COMPLETIONS, {"prompt": "please hold", "stream": True})
        connection.recv(10)
        assert value(server, "radix_open_requests") == 1
        connection.close()
        wait_until_ended(server)
        counted = {"completed": 3, "failed": 1, "refused": 2, "hung_up": 1}
        for outcome, count in counted.items():
            labels = {"endpoint": COMPLETIONS, "outcome": outcome, "tenant": ""}
            assert value(server, "radix_requests_total", **labels) == count
        assert value(server, "radix_refusals_total", code="context_length_exceeded") == 1
        assert value(server, "radix_refusals_total", code="invalid_value") == 1
        # Of completed ones: three bytes of prompt each, four pieces of answer.
        assert value(server, "radix_request_seconds_count") == 3
        assert value(server, "radix_request_prompt_tokens_sum") == 9
        assert value(server, "radix_request_completion_tokens_sum") == 12


def test_times_are_taken_of_each_token_and_by_whether_the_prompt_was_cached() -> None:
    with running_server() as server:
        for _ in range(2):
            server.post(COMPLETIONS, {"prompt": "p" * 40, "n": 2})
        first = "radix_time_to_first_token_seconds_count"
        assert value(server, first, cache="miss") == 1
        assert value(server, first, cache="hit") == 1
        # Nine tokens a request: two answers of four pieces, and one more.
        assert value(server, "radix_inter_token_seconds_count") == 2 * (3 + 4)


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_that_the_servers_end_cuts_short_is_aborted(stream: bool) -> None:
    with running_server() as server, ThreadPoolExecutor(1) as pool:
        body = {"prompt": "please hold", "stream": stream}
        answer = pool.submit(server.post, COMPLETIONS, body)
        server.engine.record.wait_until(lambda: 1 in server.engine.record.submitted)
        server.engine.abort(1)
        assert answer.result(TIMEOUT_S).status_code == (200 if stream else 503)
        wait_until_ended(server)
        labels = {"endpoint": COMPLETIONS, "outcome": "aborted", "tenant": ""}
        assert value(server, "radix_requests_total", **labels) == 1


def test_each_application_counts_for_itself(server: Running) -> None:
    server.post(COMPLETIONS, {"prompt": "x"})
    with running_server(settings=HttpSettings()) as other:
        assert value(other, "radix_ready") == 1
        assert "radix_requests_total{" not in other.client.get("/metrics").text


def test_a_label_has_a_bounded_number_of_values() -> None:
    counts = RequestMetrics()
    for number in range(1000):
        counts.ended(CHAT, "completed", f"tenant-{number}", None)
        counts.ended(CHAT, "refused", None, f"code-{number}")
    assert len(counts.outcomes) <= 260
    assert len(counts.refusals) <= 260
    assert counts.outcomes[CHAT, "completed", "tenant-7"] == 1
    assert counts.outcomes.total() == 2000
    assert counts.refusals["other"] == 1000 - 256


def test_a_histogram_counts_what_is_not_above_each_bound() -> None:
    buckets = Buckets((1.0, 2.0, 1048576.0))
    for size in (0.5, 1.0, 1.5, 3.0, 2e6):
        buckets.observe(size)
    assert buckets.cumulative() == [("1.0", 2), ("2.0", 3), ("1048576.0", 4), ("+Inf", 5)]
    assert (buckets.total, buckets.count) == (2000006.0, 5)


def test_tenants_are_told_apart_where_there_are_keys(tmp_path: Path) -> None:
    with running_server(settings=HttpSettings(keys=ring(tmp_path))) as server:
        for key in (ACME, BETA, ACME, OPERATOR, "wrong"):
            server.post(COMPLETIONS, {"prompt": "x"}, bearer(key))
        server.client.get("/metrics", headers=bearer(ACME))
        server.client.headers.update(bearer(OPERATOR))
        for tenant, count in (("acme", 2), ("beta", 1), ("", 1)):
            labels = {"endpoint": COMPLETIONS, "outcome": "completed", "tenant": tenant}
            assert value(server, "radix_requests_total", **labels) == count
        assert value(server, "radix_refusals_total", code="invalid_api_key") == 1
        assert value(server, "radix_refusals_total", code="operators_only") == 1
