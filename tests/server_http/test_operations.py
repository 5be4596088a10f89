"""Models, health, server info, the tree, the cache and the API description."""

from __future__ import annotations

from server.http.schemas import ErrorBody, Health, ModelList, ServerInfo
from tests.server_http.running import Running, running_server


def test_the_served_model_is_listed(server: Running) -> None:
    listed = ModelList.model_validate_json(server.client.get("/v1/models").content, strict=True)
    assert [model.id for model in listed.data] == ["scripted-1"]
    assert listed.data[0].max_model_len == 256
    assert server.client.get("/v1/models/scripted-1").json() == listed.data[0].model_dump()
    assert server.client.get("/v1/models/other").json()["error"]["code"] == "model_not_found"


def test_server_info_shows_memory_counters_and_state(server: Running) -> None:
    response = server.client.get("/server_info")
    info = ServerInfo.model_validate_json(response.content, strict=True)
    assert info.kv.model_dump() == {
        "blocks": 64,
        "block_size": 16,
        "tokens": 1024,
        "bytes_per_token": 1000,
        "dtype": "fp32",
    }
    assert (info.weights, info.kernels, info.exact) == ("fp32", "torch", False)
    assert (info.model, info.context_length, info.prefix_cache) == ("scripted-1", 256, True)
    assert info.scheduling.model_dump() == {
        "order": "lpm",
        "fair": False,
        "max_step_tokens": 256,
        "max_running": 64,
        "max_passed_by": 256,
        "max_waiting": None,
    }
    assert info.counters == {"prompt_tokens": 1, "cached_tokens": 2}
    assert info.state["running"] == 0
    assert info.memory.peak_rss_bytes > 1_000_000


def test_the_tree_is_passed_through_and_a_flush_reports_what_it_freed(server: Running) -> None:
    prompt = "\u00e9" * 16  # 32 tokens, two blocks
    server.client.post("/flush_cache")
    server.post("/v1/completions", {"prompt": prompt})
    assert server.client.get("/debug/tree").json() == {"prompts": [prompt]}
    assert server.client.post("/flush_cache").json() == {"freed_blocks": 2}
    assert server.client.get("/debug/tree").json() == {"prompts": []}


def test_the_api_description_documents_bodies_and_ranges(server: Running) -> None:
    description = server.client.get("/openapi.json").json()
    schemas = description["components"]["schemas"]
    for path, name in [
        ("/v1/completions", "CompletionRequest"),
        ("/v1/chat/completions", "ChatRequest"),
    ]:
        operation = description["paths"][path]["post"]
        reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        assert reference == f"#/components/schemas/{name}"
        assert set(operation["responses"]["200"]["content"]) == {
            "application/json",
            "text/event-stream",
        }
        fields = schemas[name]["properties"]
        assert all(field.get("description") for field in fields.values())
        assert fields["temperature"]["anyOf"][0] == {"type": "number", "minimum": 0, "maximum": 2}
    assert all(
        "summary" in each for path in description["paths"].values() for each in path.values()
    )


def test_every_reference_in_the_api_description_has_its_target(server: Running) -> None:
    response = server.client.get("/openapi.json")
    schemas = response.json()["components"]["schemas"]
    references = response.text.split('"$ref":"#/components/schemas/')[1:]
    assert len(references) > 10
    assert all(each.partition('"')[0] in schemas for each in references)


def test_a_dead_engine_is_unhealthy_and_refuses_at_once() -> None:
    with running_server() as server:
        healthy = server.client.get("/health")
        assert (healthy.status_code, healthy.json()) == (200, {"status": "ok"})
        server.engine.die()
        unhealthy = server.client.get("/health")
        assert unhealthy.status_code == 503
        assert Health.model_validate_json(unhealthy.content).status == "engine_stopped"
        for response in (
            server.post("/v1/completions", {"prompt": "x"}),
            server.client.get("/debug/tree"),
            server.client.post("/flush_cache"),
        ):
            error = ErrorBody.model_validate_json(response.content, strict=True).error
            assert (response.status_code, error.code) == (503, "engine_stopped")
        assert server.client.get("/server_info").status_code == 200


def test_health_asks_for_no_request(server: Running) -> None:
    before = len(server.engine.record.submitted)
    assert server.client.get("/health").status_code == 200
    assert len(server.engine.record.submitted) == before
