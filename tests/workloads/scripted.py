"""An HTTP server with known answers, so that what a replay measures has a known right value.

A word is a token. A prompt's cached tokens are the words of the longest earlier prompt that it
begins with, message by message. The reply to the n-th call is "reply n" in two pieces.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMPLETION_TOKENS = 3


@dataclass
class Script:
    """How the server behaves, and what it was sent."""

    prefix_cache: bool = True
    context_length: int = 10**9
    dies_at_call: int | None = None
    cached_counter_error: int = 0
    stream_error: dict[str, object] | None = None
    own_words: str = "reply"
    reasons: bool = False  # before each answer, in a field of its own
    only_openai: bool = False  # no path but OpenAI's
    models: list[str] = field(default_factory=list)
    tells: tuple[str, ...] = ("prompt_tokens", "completion_tokens", "prompt_tokens_details")
    tells_zero: bool = True
    busy_from_call: int | None = None
    too_long_error: dict[str, object] = field(
        default_factory=lambda: {"error": {"message": "long", "code": "context_length_exceeded"}}
    )
    holds_call: int | None = None  # that call gets no answer: `held` is set, `release` awaited
    held: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)
    prompts: list[list[dict[str, str]]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    flushes: int = 0
    counters: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("prompt_tokens", "cached_tokens"), 0)
    )
    lock: threading.Lock = field(default_factory=threading.Lock)
    seen: list[list[dict[str, str]]] = field(default_factory=list)

    def info(self) -> dict[str, object]:
        counted = dict(self.counters)
        counted["computed_tokens"] = counted["prompt_tokens"] - counted["cached_tokens"]
        if counted["cached_tokens"]:
            counted["cached_tokens"] += self.cached_counter_error
        return {
            "model": "scripted",
            "kv": {"blocks": 8, "block_size": 16, "tokens": 128, "bytes_per_token": 1},
            "context_length": self.context_length,
            "prefix_cache": self.prefix_cache,
            "counters": counted,
            "state": {"running": 0, "waiting": 0},
            "memory": {"peak_rss_bytes": 3 * 2**20},
        }

    def count(self, messages: list[dict[str, str]]) -> tuple[int, int]:
        """Prompt and cached tokens of a prompt, which is remembered."""
        cached = 0
        for earlier in self.seen if self.prefix_cache else ():
            if messages[: len(earlier)] == earlier:
                cached = max(cached, words(earlier))
        self.seen.append(messages)
        return words(messages), min(cached, words(messages) - 1)


def words(messages: list[dict[str, str]]) -> int:
    return sum(len(message["content"].split()) for message in messages)


def _handler(script: Script, server: ThreadingHTTPServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            if self.path == "/v1/models" and script.models:
                self._json(200, {"data": [{"id": name} for name in script.models]})
            elif script.only_openai:
                self._json(404, {"detail": "Not Found"})
            else:
                self._json(200, script.info() if self.path == "/server_info" else {"status": "ok"})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if script.only_openai and not self.path.startswith("/v1/"):
                self._json(404, {"detail": "Not Found"})
                return
            if self.path == "/flush_cache":
                script.flushes += 1
                script.seen.clear()
                self._json(200, {"freed_blocks": 0})
                return
            with script.lock:
                self._answer(json.loads(body))

        def _answer(self, body: dict[str, Any]) -> None:
            raw = self.path == "/v1/completions"
            messages = [{"content": body["prompt"]}] if raw else body["messages"]
            if len(script.prompts) + 1 == script.dies_at_call:
                server.socket.close()
                self.close_connection = True
                return
            if len(script.prompts) + 1 == script.holds_call:
                script.held.set()
                script.release.wait(60)
                self.close_connection = True
                return
            if script.busy_from_call and len(script.prompts) + 1 >= script.busy_from_call:
                self._json(429, {"error": {"message": "come back later"}})
                return
            script.prompts.append(messages)
            script.keys.append(self.headers["authorization"])
            script.paths.append(self.path)
            script.bodies.append(body)
            if words(messages) > script.context_length:
                self._json(400, script.too_long_error)
                return
            prompt, cached = script.count(messages)
            script.counters["prompt_tokens"] += prompt
            script.counters["cached_tokens"] += cached
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            for chunk in self._chunks(raw, prompt, cached):
                self.wfile.write(f"data: {chunk}\n\n".encode())

        def _chunks(self, raw: bool, prompt: int, cached: int) -> Iterator[str]:
            for text, finish in (
                ("", None),
                (script.own_words, None),
                (f" {len(script.prompts)}", "length"),
            ):
                choice = {"text": text} if raw else {"delta": {"content": text}}
                yield json.dumps({"choices": [{**choice, "finish_reason": finish}]})
                if script.reasons and not text:
                    thought = {"delta": {"content": None, "reasoning_content": "hm"}}
                    yield json.dumps({"choices": [thought]})
                if text and script.stream_error:
                    yield json.dumps({"error": script.stream_error})
                    return
            usage = {
                "prompt_tokens": prompt,
                "completion_tokens": COMPLETION_TOKENS,
                "prompt_tokens_details": {"cached_tokens": cached},
            }
            told = {name: usage[name] for name in script.tells}
            if not cached and not script.tells_zero:
                told["prompt_tokens_details"] = None
            yield json.dumps({"choices": [], "usage": told or None})
            yield "[DONE]"

        def _json(self, status: int, value: object) -> None:
            body = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


@contextmanager
def serving(script: Script) -> Iterator[str]:
    """The URL of a server that behaves by the script, for the length of a with block."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.RequestHandlerClass = _handler(script, server)
    server.daemon_threads = True
    thread = threading.Thread(target=_serve, args=(server,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _serve(server: ThreadingHTTPServer) -> None:
    # The script may close the socket under it: that server has died.
    with suppress(OSError, ValueError):
        server.serve_forever(poll_interval=0.01)
