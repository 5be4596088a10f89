"""soak: the server under random clients at more than it can take."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from random import Random
from typing import Any

import httpx
from tqdm import tqdm

from workloads.agents.client import CallFailed, server_info, settled_info
from workloads.own_server import ServerFailed, free_port, own_server, server_command
from workloads.results import figures_table, write_results
from workloads.soak.asking import ask
from workloads.soak.manners import CALM
from workloads.soak.options import NAME, OVERLOAD, SoakOptions
from workloads.soak.questions import PATHS, Question, Texts, make_questions
from workloads.soak.report import Idle, counts_table, figures_of, idle_of
from workloads.soak.said import Dialect
from workloads.soak.storm import Known, Storm, new_client, run_storm
from workloads.soak.tally import Tally
from workloads.soak.watch import Watched, watch

_SETTLE_LIMIT_S = 30.0
_SAMPLE = 2000  # characters, to learn how many a token has


class SoakFailed(Exception):
    """It could not be run; the message says why."""


def soak(options: SoakOptions) -> int:
    """Run, print and write; returns the exit status: 1 where a goal was missed."""
    tally, watched = Tally(), Watched()
    try:
        with _server(options) as url:
            idle, data = asyncio.run(_run(options, url, tally, watched))
    except (SoakFailed, ServerFailed, CallFailed, httpx.HTTPError, OSError) as error:
        print(f"{NAME}: FAILED: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    figures = figures_of(tally, watched, idle, options.seconds)
    told = {**data, **tally.data(), **asdict(watched), "audit": idle.problems}
    path = write_results(options.output, NAME, figures, told)
    for line in (*tally.examples, *idle.problems):
        print(f"WRONG: {line}")
    print(f"{counts_table(tally)}\n\n{figures_table(figures)}\nwritten: {path}")
    return 0 if all(figure.met is not False for figure in figures.values()) else 1


@contextmanager
def _server(options: SoakOptions) -> Iterator[str]:
    if options.url is not None:
        yield options.url
        return
    port = free_port()
    command = server_command(port, options.server_options)
    with own_server(command, port, options.output / f"{NAME}-server.log") as server:
        yield server.url


async def _run(
    options: SoakOptions, url: str, tally: Tally, watched: Watched
) -> tuple[Idle, dict[str, Any]]:
    async with new_client(url) as client:
        info = await server_info(client)
        running = info["scheduling"]["max_running"]
        clients = options.clients or OVERLOAD * running
        # Of a request, so that those of all clients together need OVERLOAD times the KV memory.
        tokens = OVERLOAD * info["kv"]["tokens"] // clients
        tokens = max(8, min(tokens, info["context_length"] // 4))
        max_tokens = max(2, tokens // 8)
        texts = Texts(
            Random(options.seed), round((tokens - max_tokens) * await _characters_a_token(client))
        )
        questions = make_questions(
            Random(options.seed), options.questions, texts, max_tokens, await _dialects(client)
        )
        known, refused = await _calm(client, questions)
        storm = Storm(
            url,
            known,
            texts,
            options.seed,
            clients,
            options.seconds,
            options.rate,
            flushes=options.url is None,
        )
        await _watched_storm(storm, client, tally, watched)
        idle = await _idle(client)
    data = {"clients": clients, "tokens_a_request": tokens, "refused_questions": refused}
    return idle, data


async def _calm(
    client: httpx.AsyncClient, questions: list[Question]
) -> tuple[list[Known], list[str]]:
    """What is said to each question alone, with nothing cached; and why some are no questions for
    this server, such as one without beam search."""
    known, refused = [], []
    for question in tqdm(questions, desc="calm", unit="question"):
        heard = await ask(client, question, CALM)
        if heard.error is None:
            known.append(Known(question, heard.said))
        elif heard.error.startswith("400 "):
            refused.append(f"{heard.error}: {question.body!r:.300}")
        else:
            raise SoakFailed(f"a question alone got {heard.error}: {question.body!r:.600}")
    if 2 * len(known) < len(questions):
        raise SoakFailed(f"most questions were refused, such as {refused[0]}")
    return known, refused


async def _watched_storm(
    storm: Storm, client: httpx.AsyncClient, tally: Tally, watched: Watched
) -> None:
    with tqdm(total=round(storm.seconds), desc="storm", unit="s") as progress:

        def tell() -> None:
            gone = watched.seconds[-1] if watched.seconds else 0.0
            progress.n = min(round(storm.seconds), round(gone))
            progress.set_postfix(tally.line())

        watching = asyncio.create_task(watch(client, watched, tell))
        try:
            await run_storm(storm, tally)
        finally:
            watching.cancel()
            tell()


async def _idle(client: httpx.AsyncClient) -> Idle:
    """The server's books once nothing runs, or after half a minute whatever it does."""
    deadline = asyncio.get_running_loop().time() + _SETTLE_LIMIT_S
    while True:
        info = await settled_info(client)
        audit = (await client.get("/debug/audit", timeout=60.0)).raise_for_status().json()
        idle = idle_of(info, audit)
        if not idle.busy or asyncio.get_running_loop().time() > deadline:
            return idle


async def _characters_a_token(client: httpx.AsyncClient) -> float:
    sample = Texts(Random(1), _SAMPLE).text(1.0)
    while True:  # half of it, where it does not fit
        body = {"prompt": sample, "max_tokens": 1, "cache_mode": "none"}
        answer = await client.post("/v1/completions", json=body)
        if answer.status_code == 200:
            return len(sample) / int(answer.json()["usage"]["prompt_tokens"])
        if len(sample) < 2:
            raise SoakFailed(f"a prompt of one character got {answer.status_code}: {answer.text}")
        sample = sample[: len(sample) // 2]


async def _dialects(client: httpx.AsyncClient) -> list[Dialect]:
    """The APIs that the server speaks."""
    paths: Mapping[str, Any] = (
        (await client.get("/openapi.json")).raise_for_status().json()["paths"]
    )
    return [dialect for dialect, path in PATHS.items() if path in paths]
