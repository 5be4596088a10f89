"""GET /debug/tree: right values, in outline, and quick however large the tree is."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from radix_engine.cache import Namespace, pack
from server import Engine, GenerationParams
from server.http.settings import HttpSettings
from tests.server_http.keys import ACME, OPERATOR, bearer, ring
from tests.server_http.real import COMPLETIONS, ask, client_of

TOKENS = list(range(40, 104))  # four blocks


def nodes(client: TestClient, **query: Any) -> list[dict[str, Any]]:
    response = client.get("/debug/tree", params=query)
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["nodes"]
    return found


def test_a_fork_is_told_with_tokens_blocks_hits_and_texts(client: TestClient) -> None:
    before = time.time()
    ask(client, COMPLETIONS, prompt=TOKENS)
    ask(client, COMPLETIONS, prompt=TOKENS[:32] + TOKENS[:32])
    body = client.get("/debug/tree").json()
    assert (body["block_size"], body["num_blocks"], body["limit"]) == (16, 512, 500)
    root, space, trunk, *leaves = body["nodes"]
    assert (root["parent"], space["parent"], trunk["parent"]) == (None, root["id"], space["id"])
    assert space["namespace"] == {"tenant": None, "salted": False, "adapter": None, "weights": 0}
    told = ("start", "tokens", "ghost_tokens", "blocks", "locks", "hits", "children")
    assert [trunk[name] for name in told] == [0, 32, 0, 2, 0, 1, 2]
    assert {leaf["parent"] for leaf in leaves} == {trunk["id"]}
    assert [[leaf[name] for name in told] for leaf in leaves] == [[32, 32, 0, 2, 0, 0, 0]] * 2
    assert sorted(leaf["victim"] for leaf in leaves) == [1, 2]
    assert trunk["victim"] == 3
    assert before - 1 < trunk["used_at"] < time.time() + 1
    assert trunk["text"].startswith("()*+,-./0123")
    assert all(node["text"] is None for node in nodes(client, text=False))


def test_ids_stay_while_the_tree_grows_below(client: TestClient) -> None:
    ask(client, COMPLETIONS, prompt=TOKENS)
    before = {node["id"]: node["text"] for node in nodes(client)}
    ask(client, COMPLETIONS, prompt=TOKENS + TOKENS)
    after = {node["id"]: node["text"] for node in nodes(client)}
    assert before.keys() <= after.keys()


def test_limit_and_depth_fold_the_rest_with_its_totals(client: TestClient) -> None:
    for first in range(6):
        ask(client, COMPLETIONS, prompt=TOKENS[:32] + [first] * 32)
    folded = nodes(client, limit=3)[-1]["folded"]
    assert folded == {"nodes": 6, "tokens": 192, "blocks": 12, "hits": 0, "at_least": False}
    assert nodes(client, depth=1)[-1]["folded"]["nodes"] == 6
    assert len(nodes(client, limit=5)) == 5


@pytest.mark.parametrize(
    "query", [{"limit": 0}, {"limit": 20_001}, {"depth": 0}, {"format": "xml"}, {"text": "often"}]
)
def test_a_wrong_query_is_refused_by_name(client: TestClient, query: dict[str, Any]) -> None:
    response = client.get("/debug/tree", params=query)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == next(iter(query))


def test_a_part_of_the_tree_is_told_with_what_is_above_it(client: TestClient) -> None:
    for first in range(6):
        ask(client, COMPLETIONS, prompt=TOKENS[:32] + [first] * 32)
        ask(client, COMPLETIONS, prompt=[first + 10] * 32)
    whole = nodes(client)
    trunk = next(node for node in whole if node["children"] == 6)
    told = nodes(client, root=trunk["id"])
    assert [node["id"] for node in told[:3]] == [whole[0]["id"], whole[1]["id"], trunk["id"]]
    assert {node["id"] for node in told[3:]} == {
        node["id"] for node in whole if node["parent"] == trunk["id"]
    }
    assert [node["folded"] for node in told[:2]] == [None, None]
    few = nodes(client, root=trunk["id"], limit=3)
    assert len(few) == 5
    assert few[2]["folded"]["nodes"] == 4
    assert nodes(client, root=whole[0]["id"]) == whole


@pytest.mark.parametrize("name", ["x", "00", "0123456789ab", "a" * 500])
def test_a_part_that_is_not_there_is_not_found(client: TestClient, name: str) -> None:
    ask(client, COMPLETIONS, prompt=TOKENS)
    nodes(client)
    response = client.get("/debug/tree", params={"root": name})
    assert response.status_code == 404
    error = response.json()["error"]
    assert (error["code"], error["param"]) == ("unknown_node", "root")


def test_a_part_that_has_gone_is_not_found(client: TestClient, engine: Engine) -> None:
    ask(client, COMPLETIONS, prompt=TOKENS)
    leaf = nodes(client)[-1]["id"]
    ask(client, COMPLETIONS, prompt=TOKENS[:32] + TOKENS[:32])  # cuts it
    told = nodes(client)
    below = next(node for node in told if node["parent"] == leaf)["id"]
    assert nodes(client, root=below)[-1]["id"] == below
    cache = engine.inspector._cache
    assert cache is not None
    cache._tree.ghosts.budget = 0
    engine._loop.call(lambda: cache.evict(100))
    response = client.get("/debug/tree", params={"root": below})
    assert response.status_code == 404


def test_text_and_dot_show_the_same_and_move_no_cursor(client: TestClient) -> None:
    ask(client, COMPLETIONS, prompt='a\x1b[2J"b\\ <script>' + "x" * 60)
    told = client.get("/debug/tree", params={"format": "text"}).text
    root, space, node = told.splitlines()
    assert (root, space) == ("root", "  namespace: nobody's in particular")
    assert node.startswith('    64 tokens (victim 1) a\\u001b[2J"b\\ <script>')
    assert "\x1b" not in told
    dot = client.get("/debug/tree", params={"format": "dot"}).text
    assert dot.startswith("digraph prefixes {")
    assert dot.count(" -> ") == 2
    assert '\\"b' in dot


def test_a_large_tree_is_told_in_time_and_size_while_a_request_runs(engine: Engine) -> None:
    cache = engine.inspector._cache
    assert cache is not None

    def fill() -> None:  # ghosts are nodes too: this makes 60,000 of them
        for number in range(30_000):
            first, second = divmod(number, 170)
            run = [4 + first] * 16 + [4 + second] * 16
            lease = cache.lease(cache.match(pack([*run, 0])))
            rest = pack(run[lease.num_tokens :])
            blocks = cache.allocate(len(rest) // 64)
            assert blocks is not None
            cache.publish(lease, rest, blocks)
            cache.release(lease)

    cache._tree.ghosts.budget = 200_000
    engine._loop.call(fill)
    with client_of(engine) as client:
        client.get("/debug/tree")
        name = engine.submit(TOKENS, GenerationParams(2000, ignore_eos=True), lambda output: None)
        took = []
        for _ in range(5):
            began = time.perf_counter()
            response = client.get("/debug/tree")
            took.append(time.perf_counter() - began)
            assert len(response.json()["nodes"]) == 500
            assert len(response.content) < 1_000_000
        engine.abort(name)
    assert min(took) < 0.3  # far below what a dump of all takes; a busy machine has its time


def test_only_operators_see_it_and_a_namespace_can_be_picked(
    engine: Engine, tmp_path: Path
) -> None:
    for tenant, token in (("acme", 50), ("beta", 60)):
        params = GenerationParams(1, namespace=Namespace(tenant=tenant))
        engine.generate([[token] * 32], params)
    with client_of(engine, HttpSettings(keys=ring(tmp_path))) as client:
        for path in ("tree", "events", "requests", "requests/x", "memory-curve"):
            assert client.get(f"/debug/{path}").status_code == 401
            assert client.get(f"/debug/{path}", headers=bearer(ACME)).status_code == 403
        assert client.post("/debug/explain", json={}, headers=bearer(ACME)).status_code == 403
        assert client.get("/debug").status_code == 200
        assert client.get("/debug/static/main.js").status_code == 200
        client.headers.update(bearer(OPERATOR))
        assert {node["text"] for node in nodes(client)} == {"", "2" * 32, "<" * 32}
        assert {node["text"] for node in nodes(client, namespace="acme")} == {"", "2" * 32}
        assert {node["text"] for node in nodes(client, namespace="")} == {""}
