"""POST /debug/explain: the right reason at the right token, and never another namespace's text."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from radix_engine.cache import Namespace, pack
from server import Engine, GenerationParams
from tests.server_http.real import CHAT, COMPLETIONS, ask

LONG = "You are a careful assistant who reads everything twice and then answers in one sentence. "


def explain(client: TestClient, **body: Any) -> dict[str, Any]:
    response = client.post("/debug/explain", json=body)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    assert [part["end"] for part in found["segments"][:-1]] == [
        part["start"] for part in found["segments"][1:]
    ]
    assert found["segments"][-1]["end"] == found["prompt_tokens"]
    return found


def tool(name: str) -> dict[str, Any]:
    described = {"name": name, "description": f"does {name}", "parameters": {"type": "object"}}
    return {"type": "function", "function": described}


def test_a_clock_at_the_head_is_found_at_its_token_in_the_system_message(
    engine: Engine, client: TestClient
) -> None:
    def conversation(clock: str) -> list[dict[str, Any]]:
        system = f"It is {clock} now. {LONG * 50}"
        return [{"role": "system", "content": system}, {"role": "user", "content": "Hello"}]

    ask(client, CHAT, messages=conversation("10:31"))
    found = explain(client, messages=conversation("10:57"))
    position = len(engine.text.encode("<|im_start|>system\nIt is 10:"))
    assert found["prompt_tokens"] > 3000
    assert found["match_end"]["reason"] == "diverged"
    assert found["match_end"]["position"] == found["cached_tokens"] == position
    assert found["section"] == "message 0 (system)"
    assert found["parting"]["before"].endswith("It is 10:")
    assert found["parting"]["prompt"].startswith("57 now.")
    assert found["parting"]["stored"].startswith("31 now.")
    assert f"token {position}, in message 0 (system)" in found["reason"]
    assert "'57 now." in found["advice"]
    assert "--strip-head-noise" in found["advice"]
    used = ask(client, CHAT, messages=conversation("10:57"))["usage"]["prompt_tokens_details"]
    assert used["match_end"] == found["match_end"]


def test_a_body_for_anthropics_api_is_explained_as_the_request_is_served(
    client: TestClient,
) -> None:
    def body(first: str, second: str, clock: str) -> dict[str, Any]:
        tools = [
            {"name": name, "description": LONG, "input_schema": {"type": "object"}}
            for name in (first, second)
        ]
        said = [{"type": "text", "text": f"Hello at {clock}"}]
        return {
            "system": [{"type": "text", "text": LONG}],
            "messages": [{"role": "user", "content": said}],
            "tools": tools,
        }

    ask(client, "/v1/messages", model="tiny", **body("find", "book", "10:31"))
    again = explain(client, max_tokens=5, **body("find", "book", "10:31"))
    assert again["match_end"]["reason"] == "full"
    assert again["cached_tokens"] == again["prompt_tokens"] // 16 * 16
    other = explain(client, **body("find", "book", "10:57"))
    assert other["section"] == "message 1 (user)"
    assert other["parting"]["prompt"].startswith("57")
    turned = explain(client, **body("book", "find", "10:31"))
    assert turned["section"] == "the tools"
    assert turned["parting"]["prompt"].startswith("book(")
    mine = explain(client, tenant="acme", **body("find", "book", "10:31"))
    assert (mine["namespace"]["tenant"], mine["cached_tokens"]) == ("acme", 0)


def test_what_is_wrong_in_a_body_for_anthropics_api_is_named(client: TestClient) -> None:
    body = {"system": 5, "messages": [{"role": "user", "content": "Hi"}]}
    response = client.post("/debug/explain", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["param"].startswith("system")


def test_tools_in_another_order_are_found_at_their_token_in_the_tools_section(
    engine: Engine, client: TestClient
) -> None:
    messages = [{"role": "system", "content": LONG}, {"role": "user", "content": "Hello"}]
    one, two = tool("search"), tool("write")
    ask(client, CHAT, messages=messages, tools=[one, two])
    found = explain(client, messages=messages, tools=[two, one])
    assert found["match_end"]["reason"] == "diverged"
    assert found["section"] == "the tools"
    position = len(engine.text.encode("<|im_start|>system\nTools: "))
    assert found["match_end"]["position"] == found["parting"]["position"] == position
    assert found["parting"]["prompt"].startswith("write(")
    assert found["parting"]["stored"].startswith("search(")
    assert "same order" in found["advice"]
    assert explain(client, messages=messages, tools=[one, two])["match_end"]["reason"] == "full"


@pytest.mark.parametrize("case", ["cold", "diverged", "evicted", "namespace", "short", "bypassed"])
def test_each_kind_of_miss_has_its_reason_and_advice(
    engine: Engine, client: TestClient, case: str
) -> None:
    prompt = list(range(50, 114))
    asked: dict[str, Any] = {"prompt": prompt}
    expected, advised = (case, 0), "prewarm"
    if case == "diverged":
        ask(client, COMPLETIONS, prompt=[*prompt[:40], *[7] * 24])
        expected, advised = (case, 40), "should be where two conversations part"
    elif case == "evicted":
        ask(client, COMPLETIONS, prompt=prompt)
        cache = engine.inspector._cache
        assert cache is not None
        engine._loop.call(lambda: cache.evict(2))
        expected, advised = (case, 32), "--kv-memory"
    elif case == "namespace":
        ask_as_tenant(engine, prompt)
        asked |= {"tenant": "acme", "cache_salt": "mine"}
        advised = "cache_salt"
    elif case == "short":
        asked = {"prompt": prompt[:9]}
        advised = "short"
    elif case == "bypassed":
        asked["cache_mode"] = "none"
        advised = "Leave cache_mode out"
    found = explain(client, **asked)
    assert (found["match_end"]["reason"], found["match_end"]["position"]) == expected
    assert advised in found["advice"]
    assert found["cached_tokens"] == expected[1]


def ask_as_tenant(engine: Engine, prompt: list[int]) -> None:
    engine.generate([prompt], GenerationParams(1, namespace=Namespace(tenant="acme")))


def test_what_another_request_computes_right_now_is_in_flight(
    engine: Engine, client: TestClient
) -> None:
    prompt = list(range(50, 114))
    cache = engine.inspector._cache
    assert cache is not None
    lease = cache.lease(cache.match(pack(prompt)))
    blocks = cache.allocate(2)
    assert blocks is not None
    cache.announce(lease, pack(prompt[:32]), blocks)
    found = explain(client, prompt=prompt)
    assert [(part["state"], part["start"], part["end"]) for part in found["segments"]] == [
        ("in_flight", 0, 32),
        ("new", 32, 64),
    ]
    cache.release(lease)


def test_a_recent_request_is_explained_as_it_was(client: TestClient) -> None:
    ask(client, COMPLETIONS, prompt="The cat sat on the mat and slept until the evening came.")
    second = "The cat sat on the hat and slept until the evening came."
    response = client.post(COMPLETIONS, json={"prompt": second, "max_tokens": 1})
    found = explain(client, request_id=response.headers["X-Request-Id"])
    usage = response.json()["usage"]["prompt_tokens_details"]
    assert found["at_start"] == {
        "cached_tokens": usage["cached_tokens"],
        "match_end": usage["match_end"],
    }
    assert found["match_end"]["reason"] == "full"
    assert found["parting"]["prompt"].startswith("hat and")
    assert found["parting"]["stored"].startswith("mat and")
    assert found["reason"].startswith("The prompt leaves what is stored at token")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"prompt": "a", "request_id": "b"}, 400),
        ({"request_id": "no-such"}, 404),
        ({"prompt": [1], "tenant": ""}, 400),
    ],
)
def test_a_question_about_nothing_is_refused(
    client: TestClient, body: dict[str, Any], status: int
) -> None:
    response = client.post("/debug/explain", json=body)
    assert response.status_code == status
    assert response.json()["error"]["message"]


WORDS = ("the ", "cat ", "sat ", "on ", "mat ", "dog ", "ran ")


@given(
    stored=st.lists(
        st.tuples(
            st.sampled_from(["acme", "beta", None]),
            st.sampled_from([None, "s1", "s2"]),
            st.lists(st.sampled_from(WORDS), min_size=12, max_size=30),
        ),
        min_size=2,
        max_size=6,
    ),
    asked=st.lists(st.sampled_from(WORDS), min_size=10, max_size=30),
    whose=st.tuples(st.sampled_from(["acme", "beta", None]), st.sampled_from([None, "s1"])),
)
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_whatever_is_stored_no_other_namespaces_text_is_told(
    engine: Engine,
    client: TestClient,
    stored: list[tuple[str | None, str | None, list[str]]],
    asked: list[str],
    whose: tuple[str | None, str | None],
) -> None:
    engine.flush_cache()
    for number, (tenant, salt, words) in enumerate(stored):
        # Each namespace's texts have a mark of its own, after words that others may have too.
        mark = f"[{tenant}/{salt}/{number}] "
        text = "".join([*words[:6], mark, *words[6:]])
        params = GenerationParams(1, namespace=Namespace(tenant=tenant, salt=salt))
        engine.generate([text], params)
    tenant, salt = whose
    body: dict[str, Any] = {"prompt": "".join(asked)}
    body |= {"tenant": tenant} if tenant else {}
    body |= {"cache_salt": salt} if salt else {}
    found = explain(client, **body)
    shown = repr((found["parting"], found["reason"], found["advice"], found["segments"]))
    for other_tenant, other_salt, _ in stored:
        if (other_tenant, other_salt) != whose:
            assert f"[{other_tenant}/{other_salt}/" not in shown
