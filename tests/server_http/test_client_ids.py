"""A client's own ids are the client's business: two requests with one id are two requests."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.server_http.running import Running
from tests.server_http.scripted import TIMEOUT_S

COMPLETIONS = "/v1/completions"
SAME = {"X-Request-Id": "task-7"}


@pytest.mark.parametrize("fields", [{}, {"rid": "task-7"}])
def test_requests_at_a_time_with_one_id_have_their_own_answers(
    server: Running, fields: dict[str, Any]
) -> None:
    record = server.engine.record
    held = f"{fields} first one hold"
    answers: dict[str, Any] = {}

    def ask(prompt: str) -> None:
        answers[prompt] = server.post(COMPLETIONS, {"prompt": prompt, **fields}, SAME)

    first = threading.Thread(target=ask, args=(held,))
    first.start()
    record.wait_until(lambda: bool(record.ids_of(held)))
    ask("second")
    assert answers["second"].json()["choices"][0]["text"] == "Hello, w\u00f6rld!"
    assert first.is_alive(), "the second one's end is not the first one's"
    server.engine.release()
    first.join(TIMEOUT_S)
    assert answers[held].json()["choices"][0]["text"] == "Hello!"
    ids = {answer.headers["x-request-id"] for answer in answers.values()}
    assert len(ids) == 2
    assert {answer.headers["x-client-request-id"] for answer in answers.values()} == {"task-7"}


def test_an_id_may_be_used_again_after_the_end_and_after_a_hang_up(server: Running) -> None:
    record = server.engine.record
    bodies = []
    for _ in range(3):
        bodies.append(server.post(COMPLETIONS, {"prompt": "again"}, SAME).json())
    connection = server.send(COMPLETIONS, {"prompt": "gives up hold"}, SAME)
    record.wait_until(lambda: bool(record.ids_of("gives up hold")))
    connection.close()
    record.wait_until(lambda: record.ids_of("gives up hold")[0] in record.ended)
    bodies.append(server.post(COMPLETIONS, {"prompt": "again"}, SAME).json())
    assert len({body["id"] for body in bodies}) == 4
    assert len({body["choices"][0]["text"] for body in bodies}) == 1
