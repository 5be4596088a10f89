"""The metrics of one application in Prometheus' or OpenMetrics' text."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from server.metrics import catalogue
from server.metrics.engine_families import (
    alone,
    build_family,
    by_label,
    counter,
    engine_families,
)
from server.metrics.request_families import request_families
from server.metrics.request_metrics import RequestMetrics
from server.near_miss import Register
from server.outputs import EngineInfo
from server.readings import Readings


class Metrics:
    """All metrics of one application, in a registry of its own.

    ``read``: the engine's readings now; ``is_ready``: whether it takes requests; ``noise``: pieces
    of head noise that were stripped. All are quick. ``near_misses``: where those are noted.
    ``requests``: where requests are counted, on the event loop.
    """

    def __init__(
        self,
        info: EngineInfo,
        version: str,
        read: Callable[[], Readings],
        is_ready: Callable[[], bool],
        noise: Callable[[], int],
        near_misses: Register,
    ) -> None:
        self.requests = RequestMetrics()
        self._registry = CollectorRegistry()
        self._registry.register(
            _Families(info, version, read, is_ready, noise, near_misses, self.requests)
        )
        ProcessCollector(registry=self._registry)

    def render(self, accept: str) -> tuple[bytes, str]:
        """The text that suits an Accept header best, and its content type.

        To be called on the event loop, where requests are counted. Cost: about a millisecond.
        """
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


class _Families(Collector):
    """Reads everything whenever somebody asks."""

    def __init__(
        self,
        info: EngineInfo,
        version: str,
        read: Callable[[], Readings],
        is_ready: Callable[[], bool],
        noise: Callable[[], int],
        near_misses: Register,
        requests: RequestMetrics,
    ) -> None:
        self._info = info
        self._version = version
        self._read = read
        self._is_ready = is_ready
        self._noise = noise
        self._near_misses = near_misses
        self._requests = requests

    def describe(self) -> Iterable[Family]:
        """Nothing: names are this application's own, and reading here would be too early."""
        return []

    def collect(self) -> Iterable[Family]:
        """All families."""
        yield build_family(self._info, self._version)
        yield from engine_families(self._info, self._read(), ready=self._is_ready())
        yield counter(catalogue.HEAD_NOISE, alone(self._noise()))
        near = self._near_misses
        yield counter(catalogue.NEAR_MISSES, by_label(near.by_kind))
        yield counter(catalogue.NEAR_MISS_TOKENS, by_label(near.tokens_by_kind))
        yield from request_families(self._requests)
