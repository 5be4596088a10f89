"""Turn after turn of a conversation: what the cache holds of it is found again.

Prompts are answered with tokens that the test chooses. P is the length of a block; with partial
blocks a hit ends at the exact token, and only whole blocks are stored, the last token never.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server import Engine
from tests.server.forcing import force
from tests.server_chat.tiny_tokenizer import END, write_tokenizer
from tests.server_http.real import CHAT, ask, client_of, tiny_engine
from tests.tiny import make_tiny_folder

P = 16
Chat = list[dict[str, Any]]

# Like Qwen3's: reasoning stays only in what follows the user's last words.
TEMPLATE = (
    "{% set ns = namespace(last=-1) %}"
    "{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}"
    "{% endfor %}"
    "{% if tools %}{{ '<|im_start|>system\n' + tools | tojson + '<|im_end|>\n' }}{% endif %}"
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{% if m.role == 'assistant' and m.reasoning_content and loop.index0 > ns.last %}"
    "{{ '<think>\n' + m.reasoning_content + '\n</think>\n\n' }}{% endif %}"
    "{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{% if m.content or not loop.first %}{{ '\n' }}{% endif %}"
    '{{ \'<tool_call>\n{"name": "\' + c.function.name + \'", "arguments": \' }}'
    "{{ c.function.arguments if c.function.arguments is string "
    "else c.function.arguments | tojson }}"
    "{{ '}\n</tool_call>' }}{% endfor %}"
    "{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    folder = make_tiny_folder(tmp_path / "tiny", max_position_embeddings=4096)
    write_tokenizer(folder, TEMPLATE)
    end = json.loads((folder / "tokenizer.json").read_text())["added_tokens"][2]
    assert end["content"] == END
    config = folder / "generation_config.json"
    config.write_text(json.dumps({"eos_token_id": end["id"]}))
    with tiny_engine(folder, num_blocks=300) as engine:
        yield engine


@pytest.fixture
def client(engine: Engine) -> Iterator[TestClient]:
    with client_of(engine) as client:
        yield client


class Talk:
    """Asks, and answers for the model."""

    def __init__(self, engine: Engine, client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
        self._engine = engine
        self._client = client
        self._monkeypatch = monkeypatch

    def length(self, messages: Chat, **fields: Any) -> int:
        """Tokens of a prompt, made afresh."""
        return len(self._engine.text.render_chat(messages, fields.get("tools")))

    def turn(self, messages: Chat, answer: Sequence[int], **fields: Any) -> Any:
        """The body of an answer made of these tokens."""
        prompt = self._engine.text.chat_prompt(messages, fields.get("tools"))
        force(self._engine, self._monkeypatch, len(prompt.ids), answer)
        return ask(self._client, CHAT, messages=messages, max_tokens=len(answer), **fields)

    def letters(self, text: str) -> list[int]:
        """A text in tokens of single bytes, and the end."""
        encode = self._engine.text.encode
        return [token for character in text for token in encode(character)] + encode(END)

    def words(self, text: str) -> list[int]:
        """A text in the tokenizer's own tokens, and the end."""
        return self._engine.text.encode(text) + self._engine.text.encode(END)


@pytest.fixture
def talk(engine: Engine, client: TestClient, monkeypatch: pytest.MonkeyPatch) -> Talk:
    return Talk(engine, client, monkeypatch)


def details(body: Any) -> Any:
    return body["usage"]["prompt_tokens_details"]


def parted(body: Any) -> tuple[str, int]:
    """Why no more of the prompt was found, and where that begins."""
    end = details(body)["match_end"]
    return end["reason"], end["position"]


def stored(prompt: int, answer: int) -> int:
    """How many tokens of a prompt and its answer are stored."""
    return (prompt + answer - 1) // P * P


def test_an_answer_in_tokens_of_its_own_is_found_again(talk: Talk) -> None:
    asked: Chat = [{"role": "user", "content": "hi"}]
    answer = talk.letters("ab" * 20)
    first = talk.turn(asked, answer)
    assert first["choices"][0]["message"]["content"] == "ab" * 20
    length = first["usage"]["prompt_tokens"]
    history = [*asked, first["choices"][0]["message"], {"role": "user", "content": "more"}]
    second = talk.turn(history, talk.words("ok"))
    assert details(second)["cached_tokens"] == stored(length, len(answer)) > length
    # 40 tokens for what the tokenizer writes in 20.
    assert second["usage"]["prompt_tokens"] == talk.length(history) + 20


def test_an_edited_answer_is_found_up_to_the_edit(talk: Talk) -> None:
    asked: Chat = [{"role": "user", "content": "hi"}]
    length = talk.turn(asked, talk.letters("ab" * 40))["usage"]["prompt_tokens"]
    edited = {"role": "assistant", "content": "ab" * 15 + "X" + "ab" * 24}
    second = talk.turn([*asked, edited, {"role": "user", "content": "more"}], talk.words("ok"))
    assert details(second)["cached_tokens"] == length + 30


def test_tokens_of_answers_stay_in_their_namespace(talk: Talk) -> None:
    asked: Chat = [{"role": "user", "content": "hi"}]
    answer = {"role": "assistant", "content": "ab" * 20}
    history = [*asked, answer, {"role": "user", "content": "more"}]
    talk.turn(asked, talk.letters("ab" * 20), cache_salt="mine")
    other = talk.turn(history, talk.words("ok"))
    assert details(other)["cached_tokens"] == 0
    assert other["usage"]["prompt_tokens"] == talk.length(history)


@pytest.mark.parametrize("mode", ["read-only", "none"])
def test_what_is_not_to_be_stored_is_not_remembered_either(talk: Talk, mode: str) -> None:
    asked: Chat = [{"role": "user", "content": "hi"}]
    talk.turn(asked, talk.letters("ab" * 20), cache_mode=mode)
    history = [*asked, {"role": "assistant", "content": "ab" * 20}, asked[0]]
    assert talk.turn(history, talk.words("ok"))["usage"]["prompt_tokens"] == talk.length(history)


def tool_loop(talk: Talk, turns: int, *, sends_reasoning: bool) -> tuple[Chat, list[Any]]:
    """A user's question and an agent that calls a tool again and again; the conversation so far and
    all answers."""
    messages: Chat = [{"role": "user", "content": "look around"}]
    bodies: list[Any] = []
    for turn in range(turns):
        arguments = f'{{"place":  "{turn}"}}'
        written = (
            f"<think>\nlook at {turn} now\n</think>\n\nI look.\n"
            f'<tool_call>\n{{"name": "look", "arguments": {arguments}}}\n</tool_call>'
        )
        bodies.append(talk.turn(messages, talk.letters(written), tools=TOOLS))
        message = bodies[-1]["choices"][0]["message"]
        assert message["reasoning_content"] == f"look at {turn} now"
        assert message["tool_calls"][0]["function"]["arguments"] == arguments
        if not sends_reasoning:
            del message["reasoning_content"]
        call = message["tool_calls"][0]["id"]
        messages = [*messages, message, {"role": "tool", "content": "x", "tool_call_id": call}]
    return messages, bodies


def test_a_tool_loop_finds_all_of_the_turn_before(talk: Talk) -> None:
    _, bodies = tool_loop(talk, 10, sends_reasoning=True)
    for before, body in pairwise(bodies):
        usage = before["usage"]
        kept = stored(usage["prompt_tokens"], usage["completion_tokens"])
        assert details(body)["cached_tokens"] == kept


def test_reasoning_that_the_client_leaves_out_ends_the_match_where_it_began(talk: Talk) -> None:
    _, bodies = tool_loop(talk, 4, sends_reasoning=False)
    for before, body in pairwise(bodies):
        # The answer began with its reasoning, right after the prompt.
        begun = before["usage"]["prompt_tokens"]
        assert details(body)["cached_tokens"] == begun
        assert parted(body) == ("diverged", begun)


def test_reasoning_that_the_template_drops_ends_the_match_at_the_first_block(talk: Talk) -> None:
    messages, bodies = tool_loop(talk, 10, sends_reasoning=True)
    first = bodies[0]["usage"]["prompt_tokens"]
    asked = [*messages, {"role": "assistant", "content": "done"}, messages[0]]
    body = talk.turn(asked, talk.words("ok"), tools=TOOLS)
    assert details(body)["cached_tokens"] == first
    assert parted(body) == ("diverged", first)


def test_a_streamed_answer_is_remembered_as_well(talk: Talk, client: TestClient) -> None:
    asked: Chat = [{"role": "user", "content": "hi"}]
    talk.turn(asked, talk.letters("ab" * 20), cache_salt="other")  # the model is set up
    body = {"messages": asked, "max_tokens": 41, "stream": True, "temperature": 0}
    streamed = client.post(CHAT, json=body).text
    assert "ab" in streamed.replace('"content":"a"', "ab")
    history = [*asked, {"role": "assistant", "content": "ab" * 20}, asked[0]]
    second = talk.turn(history, talk.words("ok"))
    assert second["usage"]["prompt_tokens"] == talk.length(history) + 20
