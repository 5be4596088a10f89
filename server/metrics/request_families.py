"""What was counted of HTTP requests as metric families."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family

from server.metrics import catalogue as names
from server.metrics.buckets import Buckets
from server.metrics.catalogue import Metric
from server.metrics.engine_families import alone, by_label, counter, gauge
from server.metrics.request_metrics import RequestMetrics


def request_families(requests: RequestMetrics) -> Iterable[Family]:
    """All of it."""
    yield gauge(names.OPEN_REQUESTS, alone(requests.open))
    yield counter(names.REQUESTS, list(requests.outcomes.items()))
    yield counter(names.REFUSALS, by_label(requests.refusals))
    first = requests.first_token
    yield _histogram(names.FIRST_TOKEN_SECONDS, *first.items())
    yield _histogram(names.INTER_TOKEN_SECONDS, ("", requests.inter_token))
    yield _histogram(names.QUEUE_SECONDS, ("", requests.queue))
    yield _histogram(names.REQUEST_SECONDS, ("", requests.whole))
    yield _histogram(names.REQUEST_PROMPT_TOKENS, ("", requests.prompt_tokens))
    yield _histogram(names.REQUEST_COMPLETION_TOKENS, ("", requests.completion_tokens))


def _histogram(metric: Metric, *values: tuple[str, Buckets]) -> Family:
    """``values``: by the label's, where there is one."""
    family = HistogramMetricFamily(
        metric.full_name, metric.meaning, labels=metric.labels, unit=metric.unit
    )
    for label, buckets in values:
        labels = [label] if metric.labels else []
        family.add_metric(labels, buckets.cumulative(), buckets.total)
    return family
