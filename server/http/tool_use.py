"""What a request's tools mean for its answer, whichever API they came in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from radix_engine.model.sampling_params import MAX_LOGIT_BIAS, SamplingParams
from server.chat.one_call import OneCall
from server.chat.parser import AnswerParser, PlainParser
from server.chat.prompt import ChatPrompt
from server.constraint import Constraint
from server.http.engine_like import TextLike

Definition = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolUse:
    """``definitions``: the tools, as the chat template shows them. ``must_call``: those of which
    the answer has to call one. ``may_call``: calls are looked for. ``several``: more than one call
    may come."""

    definitions: Sequence[Definition] = ()
    must_call: Sequence[Definition] = ()
    may_call: bool = False
    several: bool = True

    @property
    def must_not_call(self) -> bool:
        """There are tools, and none may be called."""
        return bool(self.definitions) and not self.may_call

    @property
    def for_template(self) -> list[Definition] | None:
        """The tools, if there are any."""
        return list(self.definitions) or None

    def new_parser(self, text: TextLike, prompt: ChatPrompt) -> Callable[[], AnswerParser]:
        """What parts an answer to this prompt."""
        definitions = list(self.definitions)
        new = partial(text.new_parser, tools=self.may_call, definitions=definitions, prompt=prompt)
        if isinstance(new(), PlainParser):
            return PlainParser
        return new if self.several else lambda: OneCall(new())

    def constraint(
        self, asked: Constraint | None, text: TextLike, prompt: ChatPrompt
    ) -> Constraint | None:
        """What the answer has to be: a call, where one must come; else what was ``asked`` for, or a
        call in its place, where one may come. Raises RequestRefused."""
        if self.must_call:
            return text.call_constraint(list(self.must_call), prompt, several=self.several)
        if asked is None:
            return None
        definitions = list(self.definitions) if self.may_call else []
        instead = text.calls_instead(definitions, several=self.several) if definitions else ""
        return replace(asked, before=text.reasoning_before(prompt), instead=instead)

    def sampling(self, sampling: SamplingParams, text: TextLike) -> SamplingParams:
        """Where no tool may be called, what begins a call is made as unlikely as can be."""
        if not self.must_not_call:
            return sampling
        unlikely = dict.fromkeys(text.call_openings, -MAX_LOGIT_BIAS)
        return replace(sampling, logit_bias={**unlikely, **sampling.logit_bias})
