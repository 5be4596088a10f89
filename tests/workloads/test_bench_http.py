"""What is measured of the HTTP side, and beside what."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from server.http import create_app
from server.http.chat_schemas import ChatCompletion, ChatCompletionChunk
from workloads.__main__ import main
from workloads.http.bare_app import BareApp
from workloads.http.instant_engine import TOKENS, WORD, InstantEngine
from workloads.http.path_bench import CASES, Case, figures_of
from workloads.http.path_load import PATH, Timing, chat_body, timing


@pytest.fixture
def ours() -> Iterator[TestClient]:
    engine = InstantEngine()
    with TestClient(create_app(engine), base_url="http://127.0.0.1") as client:
        yield client
    engine.shutdown(0.0)


@pytest.fixture
def bare() -> TestClient:
    return TestClient(BareApp(), base_url="http://127.0.0.1")


def test_both_servers_send_the_same_answer(ours: TestClient, bare: TestClient) -> None:
    body = chat_body(stream=False)
    for client in (ours, bare):
        answer = ChatCompletion.model_validate_json(client.post(PATH, content=body).content)
        assert answer.choices[0].message.content == WORD * TOKENS
        assert answer.usage.completion_tokens == TOKENS


def test_both_servers_stream_the_same_events(ours: TestClient, bare: TestClient) -> None:
    body = chat_body(stream=True)
    lengths = []
    for client in (ours, bare):
        content = client.post(PATH, content=body).text
        *chunks, done, rest = content.split("\n\n")
        assert (done, rest) == ("data: [DONE]", "")
        events = [ChatCompletionChunk.model_validate_json(each[6:]) for each in chunks]
        text = "".join(each.choices[0].delta.content or "" for each in events)
        assert text == WORD * TOKENS
        lengths.append(len(content))
    assert lengths[1] == pytest.approx(lengths[0], rel=0.1)


def test_a_loads_times_and_rate() -> None:
    found = timing([0.001 * n for n in range(1, 102)], 2.0)
    assert (found.requests, found.per_second) == (101, 50.5)
    assert found.p50_ms == pytest.approx(51)
    assert found.p99_ms == pytest.approx(100)


def test_what_is_added_is_the_median_of_the_rounds_own_differences() -> None:
    def times(*p50s: float) -> list[Timing]:
        return [Timing(10, 100.0, p50, 2 * p50) for p50 in p50s]

    # The machine was slower in the second round; both servers were.
    timings = {case: {"ours": times(3, 30, 4), "bare": times(1, 28.5, 1)} for case in CASES}
    timings[Case(True, 1)] = {"ours": times(4, 40, 5), "bare": times(1, 37, 1.5)}
    figures = figures_of(timings)
    assert figures["http_added_p50_whole_1_ms"].value == 2
    assert figures["http_added_p50_ms"].value == 3, "the worse of whole and streamed, one client"
    assert figures["http_added_p50_ms"].goal == 3
    assert figures["http_added_p99_ms"].value == 6
    assert figures["http_whole_64_rps"].value == 100
    assert {name for name, figure in figures.items() if figure.goal is not None} == {
        "http_added_p50_ms"
    }


@pytest.mark.slow
def test_it_measures_both_and_writes_its_figures(tmp_path: Path) -> None:
    arguments = ["--rounds", "1", "--seconds", "0.05", "--output", str(tmp_path)]
    assert main(["bench-http", *arguments]) == 0
    result = json.loads((tmp_path / "bench-http.json").read_text())
    assert result["data"].keys() == {case.name for case in CASES}
    for of_server in result["data"].values():
        assert all(each[0]["requests"] > 0 for each in of_server.values())
