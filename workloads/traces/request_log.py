"""Logs of requests to an OpenAI-style API: each row has a whole prompt.

A row is a request's body, or has it as ``request`` or ``body`` (an object, or the same as text, or
an object that has a ``body``), as gateways and OpenAI's batch files write it, with ``response``
beside it. Sessions go by a field that names one, in the row, its headers or its ``metadata``, or
by ``prompt_cache_key`` or ``user``; else a chat goes on with the session whose latest prompt it
begins with. A completion's prompt is always whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from workloads.traces.chat_text import message_text, plain_messages, with_tools
from workloads.traces.continuing import OpenSessions
from workloads.traces.lines import TraceError
from workloads.traces.log_times import reply_seconds, seconds_of
from workloads.traces.objects import Object, Placed, kind_of
from workloads.traces.row import LeftOut, Row
from workloads.traces.session import Call, Message

_SESSION_FIELDS = ("session_id", "conversation_id", "thread_id")
_SESSION_HEADERS = (
    "x-session-id",
    "session-id",
    "session_id",
    "x-conversation-id",
    "conversation-id",
    "helicone-session-id",
)


def request_rows(objects: Iterable[Placed]) -> Iterator[Row | LeftOut]:
    """The calls of a log in its order. Requests of other kinds (embeddings, responses), which have
    an ``input``, are left out. Raises TraceError that names file, line and field."""
    sessions = OpenSessions()
    for number, (where, value) in enumerate(objects, 1):
        field, body = _body(value, where)
        if "input" in body and not body.keys() & {"messages", "prompt"}:
            yield LeftOut("requests that have an input in place of messages or a prompt")
            continue
        reply, ignored = _reply(value.get("response"), f"{where}: response")
        time_s, reply_s = seconds_of(value, where), reply_seconds(value, where)
        name = _session_name(value, body, where)
        place = f"{where}: {field}"
        if body.get("messages") is None and "prompt" in body:
            for at, prompt in enumerate(_prompts(body["prompt"], f"{place}prompt")):
                own = f"request-{number}" if at == 0 else f"request-{number}-{at}"
                call = Call((Message("user", prompt),), None if at else reply, reset=True, raw=True)
                yield Row(name or own, call, (), tuple(ignored), time_s, reply_s)
            continue
        messages, mapped, left_out = plain_messages(body.get("messages"), f"{place}messages")
        tools = body.get("tools") or body.get("functions")
        prompt_messages = with_tools(messages, tools, f"{place}tools")
        found = sessions.place(name, prompt_messages, reply)
        call = Call(tuple(prompt_messages[found.known :]), reply, reset=not found.known)
        yield Row(
            found.session,
            call,
            tuple(mapped),
            tuple(sorted({*ignored, *left_out})),
            time_s,
            reply_s,
            found.earlier_reply,
        )


def _body(row: Object, where: str) -> tuple[str, Object]:
    """The request's body, and the path of fields to it."""
    for field in ("request", "body"):
        if row.get(field) is not None:
            value = _parsed(row[field], f"{where}: {field}")
            inner = value.get("body")
            if inner is None:
                return f"{field}.", value
            return f"{field}.body.", _parsed(inner, f"{where}: {field}.body")
    if row.keys() & {"messages", "prompt", "input"}:
        return "", row
    raise TraceError(f"{where}: has neither request, body, messages nor prompt")


def _parsed(value: Any, where: str) -> Object:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise TraceError(
                f"{where}: not JSON: {error.msg} at character {error.pos + 1}"
            ) from error
    if not isinstance(value, dict):
        raise TraceError(f"{where} must be an object, is {kind_of(value)}")
    return value


def _reply(response: Any, where: str) -> tuple[str | None, list[str]]:
    """What was answered (of several answers the first; None for an error), and what of it cannot
    be read."""
    if response is None:
        return None, []
    if isinstance(response, str) and not response.lstrip().startswith("{"):
        return None, ["response (not JSON)"]
    answer = _parsed(response, where)
    if answer.get("body") is not None:
        answer = _parsed(answer["body"], f"{where}.body")
    choices = answer.get("choices")
    if not choices:
        return None, []
    if not isinstance(choices, list) or not isinstance(choices[0], dict):
        raise TraceError(f"{where}: choices must be a list of objects")
    first = choices[0]
    if isinstance(first.get("message"), dict):
        return message_text(first["message"], f"{where}: choices[0].message")
    text = first.get("text")
    if not isinstance(text, str):
        raise TraceError(f"{where}: choices[0] has neither a message nor a text")
    return text, []


def _prompts(prompt: Any, where: str) -> list[str]:
    prompts = prompt if isinstance(prompt, list) else [prompt]
    if not prompts or not all(isinstance(each, str) for each in prompts):
        raise TraceError(f"{where} must be text or a list of texts; token ids cannot be replayed")
    return prompts


def _session_name(row: Object, body: Object, where: str) -> str | None:
    request = row.get("request")
    for holder in (row, body, row.get("metadata"), body.get("metadata")):
        if isinstance(holder, dict) and (name := _first(holder, _SESSION_FIELDS, where)):
            return name
    for holder in (row, request if isinstance(request, dict) else row):
        headers = holder.get("headers")
        if isinstance(headers, dict):
            lowered = {str(key).lower(): value for key, value in headers.items()}
            if name := _first(lowered, _SESSION_HEADERS, where):
                return name
    return _first(body, ("prompt_cache_key", "user"), where)


def _first(holder: Object, fields: Iterable[str], where: str) -> str | None:
    for field in fields:
        value = holder.get(field)
        if value is None or value == "":
            continue
        if type(value) not in (str, int):
            raise TraceError(f"{where}: {field} must be a string, is {kind_of(value)}")
        return str(value)
    return None
