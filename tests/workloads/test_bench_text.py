"""bench-text sees what long prompts do to others, against a server that is made to stall."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import torch

from radix_engine.model.linear import TorchPacking
from radix_engine.model.load import load_model
from radix_engine.model.source import ModelFolder
from tests.tiny import make_tiny_folder
from workloads.http.bench_text import GOAL_MS, figures_of, measure, rounds_table
from workloads.http.text_load import KINDS, bodies, long_texts, path_of
from workloads.http.text_model import KV_BYTES_PER_TOKEN, write_model
from workloads.http.text_run import STREAMS, Round, Window
from workloads.http.wire import BadAnswer

STALL_S = 0.3


class Stalling:
    """Sends pieces every few milliseconds, and stops all of it while it reads a long prompt."""

    def __init__(self, stall_s: float, status: str = "200 OK") -> None:
        self._stall_s = stall_s
        self._status = status
        self._goes_on = asyncio.Event()
        self._goes_on.set()
        self.prompts: list[bytes] = []

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[int]:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        async with server:
            yield server.sockets[0].getsockname()[1]

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                body = await reader.readexactly(length)
                await self._goes_on.wait()
                if head.startswith(b"GET /health"):
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
                elif b"ignore_eos" in body:
                    await self._stream(writer)
                else:
                    await self._read(body)
                    writer.write(f"HTTP/1.1 {self._status}\r\n\r\nno".encode())
                await writer.drain()

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            await self._goes_on.wait()
            writer.write(b"data: {}\n\n")
            await writer.drain()
            await asyncio.sleep(0.005)

    async def _read(self, body: bytes) -> None:
        self.prompts.append(body)
        self._goes_on.clear()
        await asyncio.sleep(self._stall_s)
        self._goes_on.set()


def test_a_server_that_stalls_is_seen_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workloads.http.bench_text._FIRST_LOOK_S", 0.1)
    for place in ("_SETTLE_S", "_AFTER_S"):
        monkeypatch.setattr(f"workloads.http.text_run.{place}", 0.05)

    async def main() -> tuple[dict[str, Sequence[Round]], int]:
        server = Stalling(STALL_S)
        async with server.serving() as port:
            found = await measure(port, {"completions": [b"a", b"b"], "chat": [b"c"]}, 1)
            return dict(found), len(server.prompts)

    found, sent = asyncio.run(main())
    assert sent == 6, "two rounds with each, of which the first does not count"
    assert {kind: len(rounds) for kind, rounds in found.items()} == {"completions": 1, "chat": 1}
    for kind in found:
        (each,) = found[kind]
        assert each.during.longest_gap >= 1e3 * STALL_S
        assert each.during.longest_health >= 1e3 * STALL_S / 2
        assert each.seconds >= STALL_S
        assert len(each.before.gaps) >= STREAMS
    figures = figures_of(found)
    assert figures["stream_gap_added_ms"].met is False
    assert figures["health_ms"].met is False


def test_an_answer_that_is_none_is_told() -> None:
    async def main() -> None:
        async with Stalling(0.0, "400 Bad Request").serving() as port:
            await measure(port, {"chat": [b"c"]}, 1)

    with pytest.raises(BadAnswer, match="400 Bad Request: no"):
        asyncio.run(main())


def test_the_figures_are_medians_of_the_rounds_of_the_worst_kind() -> None:
    def rounds(*longest: float) -> list[Round]:
        before = Window([9.0, 10.0], [1.0])
        return [Round(before, Window([5.0, each], [each / 2]), 2.0) for each in longest]

    found = {"completions": rounds(20.0, 30.0, 900.0), "token ids": rounds(40.0, 50.0, 10.0)}
    figures = {key: (each.value, each.goal) for key, each in figures_of(found).items()}
    assert figures == {
        "stream_gap_added_ms": (30.0, GOAL_MS),
        "health_ms": (20.0, GOAL_MS),
        "completions_gap_added_ms": (20.0, None),
        "completions_health_ms": (15.0, None),
        "completions_ready_s": (2.0, None),
        "token_ids_gap_added_ms": (30.0, None),
        "token_ids_health_ms": (20.0, None),
        "token_ids_ready_s": (2.0, None),
    }
    assert rounds_table(found).count("\n") == 1 + 6


def test_the_prompts_are_as_long_as_they_are_said_to_be_and_all_different() -> None:
    texts = long_texts(lambda text: range(len(text.split())), 3, 5_000)
    assert len({text[:40] for text in texts}) == 3
    for text in texts:
        assert len(text.split()) == 5_000
    for kind in KINDS:
        sent = [json.loads(body) for body in bodies(kind, ["one two"], lambda text: [1, 2])]
        asked = sent[0].get("prompt", sent[0].get("messages"))
        expected = {
            "completions": "one two",
            "chat": [{"role": "user", "content": "one two"}],
            "token ids": [1, 2],
        }
        assert asked == expected[kind]
        assert sent[0]["stream"] is True
        assert path_of(kind) == ("/v1/chat/completions" if kind == "chat" else "/v1/completions")


def test_the_model_has_the_tokenizer_and_a_context_that_prompts_fit(tmp_path: Path) -> None:
    tiny = ModelFolder(make_tiny_folder(tmp_path / "tiny", tokenizer=True), "tiny")
    folder = write_model(tiny, tmp_path / "model")
    model = load_model(ModelFolder(folder, "long"), TorchPacking(torch.float32))
    config = model.config
    assert config.context_length >= 2 * 128_000
    assert config.kv_bytes_per_token(torch.bfloat16) == KV_BYTES_PER_TOKEN
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (folder / name).read_bytes() == (tiny.path / name).read_bytes()
