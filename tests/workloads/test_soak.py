"""What a soak takes for wrong, for a leak and for a fault."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

from workloads.soak.asking import Heard, annoy
from workloads.soak.manners import CALM, draw_manner
from workloads.soak.nuisances import HANG_UP, Nuisance
from workloads.soak.questions import PATHS, Question, Texts, make_questions
from workloads.soak.report import Idle, figures_of, idle_of
from workloads.soak.said import Said, Stream, Unreadable, difference, whole, wrong_beginning
from workloads.soak.tally import Tally
from workloads.soak.watch import Watched, growth_per_minute

QUESTION = Question("completions", {"prompt": "x"})


def choice(**fields: Any) -> dict[str, Any]:
    return {"index": 0, "finish_reason": None, **fields}


def test_a_stream_says_what_the_whole_answer_says() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    message = {"content": "Hi all", "reasoning_content": "Hm.", "tool_calls": [call]}
    scores = [{"token": "H", "logprob": -1}, {"token": "i", "logprob": -2}]
    body = {
        "choices": [choice(message=message, finish_reason="stop", logprobs={"content": scores})]
    }
    stream = Stream("chat")
    for delta, more in (
        ({"role": "assistant", "content": ""}, {}),
        ({"reasoning_content": "Hm."}, {"logprobs": {"content": scores[:1]}}),
        ({"content": "Hi "}, {"logprobs": {"content": scores[1:]}}),
        ({"content": "all"}, {}),
        ({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]}, {}),
        ({"tool_calls": [{"index": 0, "function": {"arguments": '{"a": '}}]}, {}),
        ({"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]}, {}),
        ({}, {"finish_reason": "stop"}),
    ):
        stream.push(json.dumps({"choices": [choice(delta=delta, **more)]}))
    assert not stream.is_over
    stream.push("[DONE]")
    assert stream.is_over
    assert stream.said == whole("chat", body)
    assert stream.said[0].calls == [["f", '{"a": 1}']]


def test_a_streamed_message_says_what_the_whole_one_says() -> None:
    blocks = [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Hi all"}]
    stream = Stream("messages")
    for event in (
        {"type": "message_start", "message": {"content": []}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking"}},
        {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "Hm."}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text"}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Hi "}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "all"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    ):
        stream.push(json.dumps(event))
    assert stream.is_over
    assert stream.said == whole("messages", {"content": blocks, "stop_reason": "end_turn"})


@pytest.mark.parametrize("data", ["{", "{}", '{"choices": [{}]}', '{"error": {"message": "no"}}'])
def test_what_is_no_answer_is_unreadable(data: str) -> None:
    with pytest.raises(Unreadable):
        Stream("chat").push(data)


def test_every_part_of_an_answer_counts() -> None:
    right = {0: Said("text", "thoughts", [["f", "{}"]], [{"logprob": -1.5}], "stop")}
    assert (
        difference(right, {0: Said("text", "thoughts", [["f", "{}"]], [{"logprob": -1.5}], "stop")})
        is None
    )
    for wrong in (
        Said("texT", "thoughts", [["f", "{}"]], [{"logprob": -1.5}], "stop"),
        Said("text", "", [["f", "{}"]], [{"logprob": -1.5}], "stop"),
        Said("text", "thoughts", [], [{"logprob": -1.5}], "stop"),
        Said("text", "thoughts", [["f", "{}"]], [{"logprob": -1.5000001}], "stop"),
        Said("text", "thoughts", [["f", "{}"]], [{"logprob": -1.5}], "length"),
    ):
        assert difference(right, {0: wrong}) is not None
    assert difference(right, {}) is not None
    assert difference(right, {**right, 1: Said()}) is not None


def test_what_was_read_before_a_hang_up_must_be_the_beginning() -> None:
    right = {0: Said("one two", reason="stop"), 1: Said("three", reason="stop")}
    assert wrong_beginning(right, {}) is None
    assert wrong_beginning(right, {1: Said("thr")}) is None, "the second may come first"
    assert wrong_beginning(right, {0: Said("one two", reason="stop")}) is None
    assert wrong_beginning(right, {0: Said("one", reason="stop")}) is not None, "it ended early"
    assert wrong_beginning(right, {0: Said("one 2")}) is not None
    assert wrong_beginning(right, {2: Said("")}) is not None


def test_a_tally_tells_wrong_answers_errors_and_refusals_apart() -> None:
    tally = Tally()
    right = {0: Said("yes", reason="stop")}
    heard = [
        Heard(right),
        Heard({0: Said("no", reason="stop")}),
        Heard({0: Said("ye")}, left=True),
        Heard({0: Said("no")}, left=True),
        Heard(error="429 queue_full", busy=True),
        Heard(error="500 internal_error"),
    ]
    for each in heard:
        tally.count("chat", each)
        tally.compare(QUESTION, CALM, right, each)
    assert tally.line() == {"requests": 6, "aborts": 2, "busy": 1, "errors": 1, "wrong": 2}
    assert tally.compared == 4
    assert len(tally.examples) == 2
    json.dumps(tally.data())


def test_one_seed_asks_one_list_of_questions_of_all_kinds() -> None:
    def made(seed: int) -> list[Question]:
        texts = Texts(Random(seed), 300)
        return make_questions(Random(seed), 90, texts, 16, [*PATHS])

    questions = made(3)
    assert questions == made(3)
    assert questions != made(4)
    fields = {name for question in questions for name in question.body}
    for name in ("n", "seed", "logprobs", "top_logprobs", "echo", "tools", "use_beam_search"):
        assert name in fields
    assert fields & {"response_format", "guided_regex", "structured_outputs"}
    for question in questions:
        if question.dialect != "messages" and not question.body.get("use_beam_search"):
            assert question.body["temperature"] == 0 or "seed" in question.body


def test_prompts_share_heads_and_have_about_the_length_asked_for() -> None:
    texts = Texts(Random(1), 1000)
    prompts = [texts.prompt() for _ in range(300)]
    sharing = [prompt for prompt in prompts if prompt.startswith(tuple(texts.heads))]
    assert 0.5 < len(sharing) / len(prompts) < 0.9
    assert all(560 <= len(head) <= 640 for head in texts.heads)
    assert max(map(len, prompts)) > 2000


def test_manners_leave_what_decides_the_answer_alone() -> None:
    random = Random(2)
    manners = [draw_manner(random, QUESTION) for _ in range(400)]
    assert any(each.stream for each in manners)
    assert any(each.hangs_up_after_s is not None for each in manners)
    assert any(each.hangs_up_after_events is not None for each in manners)
    decisive = {"prompt", "messages", "max_tokens", "temperature", "seed", "n", "stop", "logprobs"}
    assert not decisive & {name for each in manners for name in each.fields}
    beams = Question("completions", {}, streams=False)
    assert not any(draw_manner(random, beams).stream for _ in range(100))


def test_a_leak_is_what_is_neither_free_nor_evictable() -> None:
    state = {"blocks_free": 5, "blocks_evictable": 7, "running": 1, "waiting": 2}
    idle = idle_of({"kv": {"blocks": 15}, "state": state}, {"problems": ["block 3 has no owner"]})
    assert idle == Idle(3, 3, ("block 3 has no owner",))


def test_growth_is_the_slope_after_the_warm_up() -> None:
    seconds = [float(each) for each in range(91)]
    rss = [(100 + 10 * min(each, 30) + each / 6) * 2**20 for each in seconds]
    assert growth_per_minute(seconds, [round(each) for each in rss]) == pytest.approx(10, rel=1e-3)
    assert growth_per_minute([], []) is None
    assert growth_per_minute([1.0, 2.0], [5, 6]) is None


def test_the_figures_miss_their_goals_where_something_was_wrong() -> None:
    watched = Watched([0.0, 60.0, 120.0, 180.0], [2**20 * n for n in (50, 60, 61, 62)], [0.25])

    def missed(tally: Tally, idle: Idle, seconds: float = 180.0) -> set[str]:
        figures = figures_of(tally, watched, idle, seconds)
        return {name for name, figure in figures.items() if figure.met is False}

    fine, calm = Tally(), Idle(0, 0, ())
    fine.requests["chat"] = 1800
    figures = figures_of(fine, watched, calm, 180.0)
    assert missed(fine, calm) == set()
    assert figures["soak_memory_mib_per_min"].value == pytest.approx(1.0)
    assert figures["soak_memory_kib_per_request"].value == pytest.approx(1024 / 600)
    assert figures["soak_slowest_health_ms"].value == 250
    assert missed(fine, Idle(1, 2, ("a", "b"))) == {
        "soak_leaked_blocks",
        "soak_unfinished_requests",
        "soak_audit_problems",
    }
    bad = Tally(wrong=1)
    bad.requests["chat"] = 180
    bad.errors["500"] += 1
    assert missed(bad, calm) == {
        "soak_wrong_answers",
        "soak_errors",
        "soak_memory_kib_per_request",
    }
    assert "soak_memory_kib_per_request" not in missed(bad, calm, seconds=60.0)


@contextmanager
def answering(data: bytes) -> Iterator[int]:
    """A port whose connections are answered so, after a first line came."""
    loop = asyncio.new_event_loop()
    ports: list[int] = []
    ready = threading.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(data)
        writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        ports.append(server.sockets[0].getsockname()[1])
        ready.set()

    loop.run_until_complete(serve())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    assert ready.wait(5)
    yield ports[0]
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.mark.parametrize(
    ("answer", "complete", "fair"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", True, True),
        (b"HTTP/1.1 413 Too Large\r\n\r\n", False, True),
        (b"HTTP/1.1 500 Internal Server Error\r\n\r\n", True, False),
        (b"HTTP/1.1 200 OK\r\n\r\n", True, False),
        (b"", True, False),
        (b"", False, True),
    ],
)
def test_garbage_may_only_be_a_clients_error(answer: bytes, complete: bool, fair: bool) -> None:
    with answering(answer) as port:
        heard = asyncio.run(annoy("127.0.0.1", port, Nuisance("a test", b"GET /", complete)))
    assert (heard.error is None) == fair


def test_nobody_who_listens_is_no_fair_answer_to_a_whole_request() -> None:
    assert not Nuisance("a test", b"", complete=True).is_fair(HANG_UP)
