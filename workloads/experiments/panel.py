"""What a picture shows, without how it is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """``kind``: a line with a marker at each value, single points, or a ceiling or fit that all
    else is held against."""

    label: str
    xs: Sequence[float]
    ys: Sequence[float]
    kind: str = "line"


@dataclass(frozen=True, slots=True)
class Panel:
    """``log_x``: sizes that double; the marks are then the lines' own values. ``percent_x`` and
    ``percent_y``: shares, shown from 0% to 100%."""

    title: str
    x: str
    y: str
    lines: Sequence[Line]
    log_x: bool = False
    percent_x: bool = False
    percent_y: bool = False
