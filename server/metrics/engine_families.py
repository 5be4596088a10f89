"""An engine's readings as metric families. Computed when somebody asks, so steps pay nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.metrics_core import Metric as Family

from server.metrics import catalogue as names
from server.metrics.catalogue import Metric
from server.outputs import EngineInfo
from server.readings import Readings

# Of a metric: the values of its labels, and its own.
Values = Iterable[tuple[Sequence[str], float]]

_STATES = ("free", "private", "in_flight", "cached", "quarantined")


def engine_families(info: EngineInfo, readings: Readings, *, ready: bool) -> Iterable[Family]:
    """All that is known of an engine."""
    counters, state = readings.counters, readings.state
    for key, metric in names.COUNTED.items():
        if key in counters:
            yield counter(metric, alone(counters[key]))
    yield counter(names.MATCH_ENDS, by_label(readings.match_ends))
    yield counter(names.MISSED_TOKENS, by_label(readings.missed_tokens))
    yield counter(names.STEP_SECONDS, by_label(readings.step_seconds))
    yield gauge(names.RUNNING, alone(state.get("running", 0)))
    yield gauge(names.WAITING, alone(state.get("waiting", 0)))
    blocks = {name: state.get(f"blocks_{name}", 0) for name in _STATES}
    yield gauge(names.KV_BLOCKS, by_label(blocks))
    yield gauge(names.EVICTABLE_BLOCKS, alone(state.get("blocks_evictable", 0)))
    yield gauge(names.RETAINED_BLOCKS, alone(state.get("blocks_retained", 0)))
    yield gauge(names.KV_CAPACITY_TOKENS, alone(info.kv_tokens))
    yield gauge(names.KV_CAPACITY_BYTES, alone(info.kv_tokens * info.kv_bytes_per_token))
    used = info.num_blocks - state.get("blocks_free", 0)
    yield gauge(names.KV_USED_TOKENS, alone(used * info.block_size))
    yield gauge(names.TRANSCRIPT_BYTES, alone(state.get("transcript_bytes", 0)))
    yield gauge(names.SESSIONS, alone(state.get("sessions", 0)))
    curve = {f"{times:g}": share for times, share in readings.hit_rate_curve.items()}
    yield gauge(names.LRU_HIT_RATIO, by_label(curve))
    yield gauge(names.STALLED_SECONDS, alone(readings.stalled_s))
    yield gauge(names.LONGEST_STEP_SECONDS, alone(readings.longest_step_s))
    yield gauge(names.READY, alone(int(ready)))


def build_family(info: EngineInfo, version: str) -> Family:
    """What is served, and by what."""
    build = names.BUILD
    family = InfoMetricFamily(build.full_name, build.meaning)
    shown = {"version": version}
    shown |= {label: str(getattr(info, label)) for label in build.labels if label != "version"}
    family.add_metric([], shown)
    return family


def counter(metric: Metric, values: Values) -> Family:
    """A counter's family."""
    family = CounterMetricFamily(
        metric.full_name, metric.meaning, labels=metric.labels, unit=metric.unit
    )
    for labels, value in values:
        family.add_metric(labels, value)
    return family


def gauge(metric: Metric, values: Values) -> Family:
    """A gauge's family."""
    family = GaugeMetricFamily(
        metric.full_name, metric.meaning, labels=metric.labels, unit=metric.unit
    )
    for labels, value in values:
        family.add_metric(labels, value)
    return family


def alone(value: float) -> Values:
    """The value of a metric without labels."""
    return [((), value)]


def by_label(values: Mapping[str, float]) -> Values:
    """Values by those of a single label."""
    return [((label,), value) for label, value in list(values.items())]
