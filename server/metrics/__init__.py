"""What the server counts and measures, for Prometheus: one registry an application."""

from server.metrics.exporter import Metrics
from server.metrics.request_metrics import Outcome, RequestMetrics
from server.metrics.request_times import RequestTimes

__all__ = ["Metrics", "Outcome", "RequestMetrics", "RequestTimes"]
