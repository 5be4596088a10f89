"""What is served, with what, and what was done so far: the body of GET /server_info."""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from server.http.service import Service
from server.readings import Readings


def server_info(service: Service, started_s: float) -> dict[str, Any]:
    """The body. ``started_s``: when the server did, on the clock of ``time.monotonic``. Never waits
    for the engine."""
    engine, settings = service.engine, service.settings
    info, readings = engine.info, engine.readings()
    return {
        "version": service.version,
        "uptime_s": round(time.monotonic() - started_s, 3),
        "model": info.model,
        "kv": {
            "blocks": info.num_blocks,
            "block_size": info.block_size,
            "tokens": info.kv_tokens,
            "bytes_per_token": info.kv_bytes_per_token,
            "dtype": info.kv_dtype,
        },
        "context_length": info.context_length,
        "weights": info.weights,
        "kernels": info.kernels,
        "exact": info.exact,
        "prefix_cache": info.prefix_cache,
        "cache": {
            "index": info.cache.index,
            "eviction": info.cache.eviction,
            "partial_blocks": info.cache.partial_blocks,
            "ttl_s": info.cache.ttl_s,
            "min_cacheable_tokens": info.min_cacheable_tokens,
        },
        "head_noise": [
            {"pattern": pattern, "stripped": count} for pattern, count in service.noise.counts()
        ],
        "scheduling": {"order": info.order, "fair": info.fair, **asdict(info.limits)},
        "http": {
            "max_body_bytes": settings.max_body_bytes,
            "request_timeout_s": settings.request_timeout_s,
            "wedged_after_s": settings.wedged_after_s,
        },
        "counters": dict(readings.counters),
        "match_ends": dict(readings.match_ends),
        "missed_tokens": dict(readings.missed_tokens),
        "hit_rate_curve": {f"{size:g}": share for size, share in readings.hit_rate_curve.items()},
        "state": dict(readings.state),
        "steps": _steps(readings),
        "memory": {"rss_bytes": _rss_bytes(), "peak_rss_bytes": _peak_rss_bytes()},
    }


def _steps(readings: Readings) -> dict[str, Any]:
    count = readings.timed_steps
    return {
        "count": count,
        "mean_us": {
            part: round(1e6 * seconds / count, 1) if count else 0.0
            for part, seconds in readings.step_seconds.items()
        },
        "longest_ms": round(1e3 * readings.longest_step_s, 3),
        "stalled_s": round(readings.stalled_s, 3),
    }


def _rss_bytes() -> int | None:
    """What is resident now; None where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * resource.getpagesize()


def _peak_rss_bytes() -> int:
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
