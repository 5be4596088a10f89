"""Clients that do all that clients do, at random, until their time is over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from urllib.parse import urlsplit

import httpx

from workloads.soak.asking import annoy, ask, send
from workloads.soak.manners import Manner, draw_manner
from workloads.soak.nuisances import draw_nuisance
from workloads.soak.questions import Question, Texts
from workloads.soak.said import Choices
from workloads.soak.tally import Tally

_LOOKS = ("/health", "/ready", "/metrics", "/server_info", "/debug/tree", "/v1/models")
_SHARES = {"ask": 0.84, "annoy": 0.06, "look": 0.04, "follow up": 0.03, "prewarm": 0.02}
_BUSY_WAIT_S = 0.05


@dataclass(frozen=True, slots=True)
class Known:
    """A question and what is said to it when it is calm."""

    question: Question
    said: Choices


@dataclass(frozen=True, slots=True)
class Storm:
    """``rate``: requests a second, of all clients together (None: each sends the next as soon as
    the last has ended). ``flushes``: whether the cache may be emptied meanwhile."""

    url: str
    known: Sequence[Known]
    texts: Texts
    seed: int
    clients: int
    seconds: float
    rate: float | None
    flushes: bool


def new_client(url: str) -> httpx.AsyncClient:
    """A client without limits, for one server."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    return httpx.AsyncClient(base_url=url, limits=limits, timeout=None, trust_env=False)


async def run_storm(storm: Storm, tally: Tally) -> None:
    """Let all clients go, and wait until the last has its last answer."""
    until = time.monotonic() + storm.seconds
    async with new_client(storm.url) as client:
        await asyncio.gather(
            *(_Client(storm, number, client, tally).run(until) for number in range(storm.clients))
        )


class _Client:
    def __init__(self, storm: Storm, number: int, client: httpx.AsyncClient, tally: Tally) -> None:
        self._storm = storm
        self._client = client
        self._tally = tally
        self._random = Random(f"{storm.seed}/{number}")

    async def run(self, until: float) -> None:
        """One request after the other."""
        rate = self._storm.rate
        while time.monotonic() < until:
            if rate is not None:
                pause = self._random.expovariate(rate / self._storm.clients)
                await asyncio.sleep(min(pause, max(0.0, until - time.monotonic())))
            await self._do(self._draw())

    def _draw(self) -> str:
        acts = dict(_SHARES, flush=0.01 if self._storm.flushes else 0.0)
        return self._random.choices([*acts], [*acts.values()])[0]

    async def _do(self, act: str) -> None:
        random = self._random
        if act == "ask":
            await self._ask(random.choice(self._storm.known))
        elif act == "annoy":
            address = urlsplit(self._storm.url)
            assert address.hostname is not None
            assert address.port is not None
            heard = await annoy(address.hostname, address.port, draw_nuisance(random))
            self._tally.count(act, heard)
        elif act == "look":
            self._tally.count(act, await send(self._client, "GET", random.choice(_LOOKS)))
        elif act == "follow up":
            await self._follow_up()
        elif act == "prewarm":
            body = {"prompt": random.choice(self._storm.texts.heads), "cache_retention_s": 2}
            heard = await send(self._client, "POST", "/v1/cache/prewarm", body)
            self._tally.count(act, heard)
        else:
            self._tally.count(act, await send(self._client, "POST", "/flush_cache"))

    async def _ask(self, known: Known) -> None:
        question = known.question
        manner = draw_manner(self._random, question)
        heard = await ask(self._client, question, manner)
        self._tally.count(f"{question.dialect}{' streamed' if manner.stream else ''}", heard)
        self._tally.compare(question, manner, known.said, heard)
        if heard.busy:
            await asyncio.sleep(_BUSY_WAIT_S)

    async def _follow_up(self) -> None:
        """A conversation whose first answer is sent back. The second is not compared: its prompt
        has other tokens where the server does not remember the first answer's."""
        random, texts = self._random, self._storm.texts
        messages = [{"role": "user", "content": f"{random.choice(texts.heads)} {texts.text(0.1)}"}]
        for _ in range(2):
            body = {"messages": messages, "max_tokens": 8}
            question = Question("chat", body)
            heard = await ask(self._client, question, Manner(random.random() < 0.5, {}))
            self._tally.count("follow up", heard)
            if heard.error is not None or not heard.said:
                return
            messages = [
                *messages,
                {"role": "assistant", "content": heard.said[0].text},
                {"role": "user", "content": texts.text(0.05)},
            ]
