"""A real engine with a tiny model behind Anthropic's own client, and answers that tests choose."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import httpx
import pytest

from server import Engine
from server.http.settings import HttpSettings
from tests.server.forcing import force
from tests.server_chat.tiny_tokenizer import END, write_tokenizer
from tests.server_http.real import tiny_engine
from tests.server_http.running import serving
from tests.server_http.scripted import TIMEOUT_S
from tests.tiny import make_tiny_folder

BLOCK = 16
CONTEXT = 2048
# Qwen3's way, shortened: tools before the system's words, thoughts, calls as JSON in tags.
TEMPLATE = (
    "{% if tools %}{{ '<|im_start|>system\n' }}"
    "{% for tool in tools %}{{ tool | tojson + '\n' }}{% endfor %}"
    "{{ '<|im_end|>\n' }}{% endif %}"
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{% if m.reasoning_content %}{{ '<think>\n' + m.reasoning_content + '\n</think>\n\n' }}"
    "{% endif %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{% if m.content or not loop.first %}{{ '\n' }}{% endif %}"
    '{{ \'<tool_call>\n{"name": "\' + c.function.name + \'", "arguments": \' }}'
    "{{ c.function.arguments | tojson + '}\n</tool_call>' }}{% endfor %}"
    "{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% if enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}{% endif %}{% endif %}"
)
TOOLS: list[dict[str, Any]] = [
    {
        "name": "weather",
        "description": "How the weather is.",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
    }
]


def make_folder(path: Path, template: str = TEMPLATE) -> Path:
    """A tiny model that ends its answers as chats do."""
    folder = make_tiny_folder(path, max_position_embeddings=CONTEXT)
    write_tokenizer(folder, template)
    added = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    (end,) = (token["id"] for token in added if token["content"] == END)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": end}))
    return folder


@dataclass
class Talk:
    """The engine, its address, and a client; ``model`` stands in each request."""

    engine: Engine
    url: str
    client: anthropic.Anthropic
    http: httpx.Client

    def body(self, **fields: Any) -> dict[str, Any]:
        """A request with these fields, greedy and short. The client has no temperature any more,
        the API has."""
        extra = {"temperature": 0, **fields.pop("extra_body", {})}
        return {"model": "tiny", "max_tokens": 1, "extra_body": extra, **fields}

    def ask(self, **fields: Any) -> anthropic.types.Message:
        """The whole answer to a request."""
        message: anthropic.types.Message = self.client.messages.create(**self.body(**fields))
        return message

    def tokens(self, text: str) -> int:
        """How many tokens a text is."""
        return len(self.engine.text.encode(text))

    def count(self, **fields: Any) -> int:
        """How many tokens a request's prompt has."""
        known = {name: each for name, each in fields.items() if name not in _OF_ANSWERS}
        return self.client.messages.count_tokens(model="tiny", **known).input_tokens

    def will_say(self, monkeypatch: pytest.MonkeyPatch, text: str, **fields: Any) -> dict[str, Any]:
        """The body of a request that will be answered with this text, and end by itself."""
        answer = self.engine.text.encode(text + END)
        force(self.engine, monkeypatch, self.count(**fields), answer)
        return self.body(**{"max_tokens": len(answer), **fields})

    def retained(self) -> list[Any]:
        """What is retained, the shortest first."""
        data: list[Any] = self.http.get("/v1/cache/retained").json()["data"]
        return sorted(data, key=lambda entry: int(entry["tokens"]))

    def flush(self) -> None:
        """Empty the cache."""
        self.http.post("/flush_cache").raise_for_status()


_OF_ANSWERS = ("max_tokens", "stop_sequences", "stream", "extra_headers", "extra_body")


@contextmanager
def talking(
    folder: Path, settings: HttpSettings | None = None, num_blocks: int = 400, **cache: Any
) -> Iterator[Talk]:
    """A served engine over the model in a folder, which is audited at the end."""
    with (
        tiny_engine(folder, num_blocks, **cache) as engine,
        pytest.MonkeyPatch.context() as patch,
        serving(_unended(engine, patch), settings=settings) as (url, _, _),
        anthropic.Anthropic(base_url=url, api_key="unused", max_retries=0) as client,
        httpx.Client(base_url=url, timeout=TIMEOUT_S) as http,
    ):
        yield Talk(engine, url, client, http)


def _unended(engine: Engine, patch: pytest.MonkeyPatch) -> Engine:
    """An engine that a server leaves running at its end: it is audited after that."""
    patch.setattr(engine, "shutdown", lambda grace_s: None)
    return engine
