"""Tells in the log when the engine is wedged, and where it hangs."""

from __future__ import annotations

import asyncio
import logging

from server.http.engine_like import EngineLike
from server.http.readiness import Readiness
from server.logs import fields

logger = logging.getLogger("server.http")

_LOOKS = 4  # for each time that the engine may take
_LONGEST_S = 5.0  # between two looks


async def watch(engine: EngineLike, readiness: Readiness) -> None:
    """Look at the engine for ever, every few seconds: one line when it is wedged, with what its
    thread is doing, and one when it gets on again. Never waits for the engine."""
    while True:
        await asyncio.sleep(min(_LONGEST_S, readiness.wedged_after_s / _LOOKS))
        if not readiness.is_wedged:
            continue
        stalled_s = engine.stalled_s()
        logger.critical(
            "the engine is wedged: it has work and has not ended a step for %.1f s. New requests "
            "get 503 until it does. This is what its thread is doing",
            stalled_s,
            extra=fields(stack=engine.stack()),
        )
        while readiness.is_wedged:
            await asyncio.sleep(min(1.0, readiness.wedged_after_s / _LOOKS))
        if engine.is_alive():
            logger.warning("the engine gets on again; new requests are taken")
