"""What a server tells of itself, as far as it can be asked: engines differ in all but OpenAI's API.

Our /server_info and /flush_cache are used where they are, vLLM's and SGLang's paths that do the
same too. What a server does not have is no error: it is None, and the report says so.
"""

from __future__ import annotations

from typing import Any

import httpx

from workloads.agents.client import CallFailed, settled_info

# Ours and SGLang's; vLLM's, where it runs with VLLM_SERVER_DEV_MODE=1.
_EMPTYING = ("/flush_cache", "/reset_prefix_cache")
_ABSENT = frozenset({401, 403, 404, 405, 501})


async def model_name(client: httpx.AsyncClient) -> str | None:
    """The model that /v1/models lists; None where the server has no such list.

    Raises CallFailed where it cannot be reached or lists several.
    """
    try:
        answer = await client.get("/v1/models", timeout=30.0)
    except httpx.HTTPError as error:
        detail = str(error) or "no answer"
        raise CallFailed(f"{client.base_url}: /v1/models: {_kind(error)}: {detail}") from error
    if answer.status_code in (401, 403):
        raise CallFailed(
            f"{client.base_url}: /v1/models: HTTP {answer.status_code}: a key is needed; name the "
            "environment variable that holds it with --api-key-env"
        )
    try:
        names = [str(model["id"]) for model in answer.json()["data"]]
    except (ValueError, KeyError, TypeError):
        return None
    if len(names) > 1:
        raise CallFailed(
            f"{client.base_url} has {len(names)} models, name one with --model-name: "
            + ", ".join(names[:12])
        )
    return names[0] if names else None


async def told_info(client: httpx.AsyncClient) -> dict[str, Any] | None:
    """Our servers' information once nothing runs; None for a server that has nothing like it.

    Raises CallFailed where the server cannot be reached.
    """
    try:
        answer = await client.get("/server_info", timeout=30.0)
    except httpx.HTTPError as error:
        detail = str(error) or "no answer"
        raise CallFailed(f"{client.base_url}: /server_info: {_kind(error)}: {detail}") from error
    try:
        # Other engines have a path of this name, with something else behind it.
        ours = answer.status_code == 200 and isinstance(answer.json()["counters"], dict)
    except (ValueError, KeyError, TypeError):
        ours = False
    return await settled_info(client) if ours else None


async def empty_cache(client: httpx.AsyncClient) -> bool:
    """Empty the server's prefix cache; whether it has a path for that.

    Raises CallFailed where it has one and that fails.
    """
    for path in _EMPTYING:
        try:
            answer = await client.post(path, timeout=30.0)
        except httpx.HTTPError as error:
            raise CallFailed(f"{client.base_url}: {path}: {_kind(error)}: {error}") from error
        if answer.status_code in _ABSENT:
            continue
        if answer.is_success:
            return True
        raise CallFailed(f"{client.base_url}: {path}: HTTP {answer.status_code}")
    return False


def _kind(error: Exception) -> str:
    return type(error).__name__
