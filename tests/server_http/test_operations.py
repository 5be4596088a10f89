"""Models, server info, the tree, the cache and the API description."""

from __future__ import annotations

from pathlib import Path

from server.http.schemas import Audit, ModelList, ServerInfo
from tests.server_http.running import Running

ROOT = Path(__file__).parents[2]


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
        "max_sessions": None,
        "max_waiting": None,
    }
    assert info.counters == {"prompt_tokens": 1, "cached_tokens": 2}
    assert info.state["running"] == 0
    assert info.memory.rss_bytes is not None
    assert 1_000_000 < info.memory.rss_bytes <= info.memory.peak_rss_bytes + 1_000_000
    assert f'version = "{info.version}"' in (ROOT / "pyproject.toml").read_text()
    assert 0 < info.uptime_s < 600
    assert info.cache.model_dump() == {
        "index": "tree",
        "eviction": "lru",
        "partial_blocks": True,
        "ttl_s": None,
        "min_cacheable_tokens": 1,
    }
    assert info.http.model_dump() == {
        "max_body_bytes": 16 * 1024 * 1024,
        "request_timeout_s": None,
        "wedged_after_s": 60.0,
    }
    assert info.steps.stalled_s == 0


def test_a_flush_reports_what_it_freed(server: Running) -> None:
    prompt = "\u00e9" * 16  # 32 tokens, two blocks
    server.client.post("/flush_cache")
    server.post("/v1/completions", {"prompt": prompt})
    assert server.client.post("/flush_cache").json() == {"freed_blocks": 2}
    assert server.client.post("/flush_cache").json() == {"freed_blocks": 0}


def test_an_operator_may_ask_for_an_audit(server: Running) -> None:
    response = server.client.get("/debug/audit")
    body = Audit.model_validate_json(response.content, strict=True)
    assert (response.status_code, body.problems) == (200, server.engine.audit())


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
