"""Parsing by the description of its answers that a tokenizer may come with."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any

from transformers.utils.chat_parsing import ResponseParser
from transformers.utils.chat_parsing.response_templates import load_response_template

from server.chat.calls import new_call_id
from server.chat.events import (
    AnswerEvent,
    ContentText,
    ReasoningText,
    ToolCallArguments,
    ToolCallBegin,
)

logger = logging.getLogger(__name__)

_REASONING = frozenset({"reasoning_content", "reasoning", "thinking"})
_CALLS = "tool_calls"


class DescribedAnswers:
    """A tokenizer's ``response_template``. Raises ValueError for one that is none."""

    def __init__(self, template: Any) -> None:
        self._template = load_response_template(template)

    def begun(self, prompt: str) -> str:
        """What of the answer a prompt has begun already. Cost: the prompt's length."""
        begun: str = self._template.truncate_past_last_anchor(prompt)
        return "" if begun == prompt else begun

    def parser(self, begun: str, tools: Sequence[dict[str, Any]] | None) -> TemplateParser:
        """For an answer of which so much has begun; ``tools`` None: calls are content."""
        return TemplateParser(self._template, begun, tools)


class TemplateParser:
    """Transformers' streaming parser, driven by the tokenizer's ``response_template``.

    ``begun``: the text of the answer that the prompt ends with; ``tools`` None: calls are content.
    Reasoning and content come as they are written. A call is given out at its end: only then
    transformers reads it. One that it cannot read is content.
    """

    def __init__(
        self,
        template: Any,
        begun: str,
        tools: Sequence[dict[str, Any]] | None,
        new_id: Callable[[], str] = new_call_id,
    ) -> None:
        self.has_called = False
        self._regions = _Regions(template, prefix=begun, tools=list(tools or ()) or None)
        self._takes_calls = tools is not None
        self._new_id = new_id
        self._calls = 0
        self._spaces = ""  # at the end of a part's text so far: no text of it if nothing follows
        self._is_first = True  # nothing of a part's text has come

    def push(self, text: str) -> list[AnswerEvent]:
        """See `AnswerParser`."""
        return self._events_of(self._regions.feed(text))

    def finish(self) -> list[AnswerEvent]:
        """See `AnswerParser`."""
        return self._events_of(self._regions.rest())

    def _events_of(self, regions: list[dict[str, Any]]) -> list[AnswerEvent]:
        events: list[AnswerEvent] = []
        for each in regions:
            kind, field = each["type"], each["field"]
            if kind == "region_open":
                self._is_first, self._spaces = True, ""
            elif field == _CALLS and kind == "region_close":
                events += self._calls_of(each)
            elif field != _CALLS and kind == "region_chunk":
                events += self._text_of(field, each["text"])
            elif kind == "region_broken":
                logger.info("a part %r of an answer could not be read", field)
                events += [ContentText(each["text"])] if field == _CALLS and each["text"] else []
        return events

    def _text_of(self, field: str, text: str) -> list[AnswerEvent]:
        """Spaces around a part's text are markup."""
        text = self._spaces + text
        shown = (text.lstrip() if self._is_first else text).rstrip()
        self._spaces = text[len(text.rstrip()) :]
        if not shown:
            return []
        self._is_first = False
        return [ReasoningText(shown) if field in _REASONING else ContentText(shown)]

    def _calls_of(self, region: dict[str, Any]) -> list[AnswerEvent]:
        value = region["value"]
        calls = [_call_of(each) for each in (value if isinstance(value, list) else [value])]
        events: list[AnswerEvent] = []
        if not self._takes_calls or not calls or None in calls:
            return [ContentText(region["text"])] if region["text"] else []
        for call in calls:
            assert call is not None
            events.append(ToolCallBegin(self._calls, self._new_id(), call[0]))
            events.append(ToolCallArguments(self._calls, call[1]))
            self._calls += 1
            self.has_called = True
        return events


class _Regions(ResponseParser):  # type: ignore[misc]
    """As transformers', but a part that cannot be read is an event like others, and not the end of
    everything; and the end of a part tells its text."""

    def rest(self) -> list[dict[str, Any]]:
        """What was held back; the answer has ended. It need not have all parts."""
        events: list[dict[str, Any]] = []
        self._process(events, eos=True)
        return events

    def _close_current(self, events: list[dict[str, Any]]) -> None:
        field, text, before = self._current, self._body, len(events)
        try:
            super()._close_current(events)
        except Exception as error:  # whatever a parser of contents raises
            logger.debug("%s", error)
            events.append({"type": "region_broken", "field": field, "text": text})
            self._reset_to_implicit()
        for each in events[before:]:
            each.setdefault("text", text)


def _call_of(value: Any) -> tuple[str, str] | None:
    """A call's name and arguments; None if it is no call."""
    function = value.get("function", value) if isinstance(value, dict) else None
    if not isinstance(function, dict):
        return None
    name, arguments = function.get("name"), function.get("arguments", {})
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        return None
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        f"{name}{text}".encode()
    except UnicodeEncodeError:
        return name, json.dumps(arguments)
    except (ValueError, TypeError, RecursionError):
        return None
    return name, text
