"""Text to tokens and back: the model's tokenizer, its chat template, and how it writes answers."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from radix_engine.cache import DEFAULT, Namespace
from server.chat.answer_forms import AUTO, forms_of
from server.chat.parser import AnswerParser
from server.chat.prompt import DEFAULT_OPTIONS, ChatOptions, ChatPrompt
from server.chat.template import ChatTemplate
from server.chat.template_parser import DescribedAnswers
from server.chat.tool_grammar import call_constraint, calls_instead, reasoning_before
from server.chat.transcripts import Transcripts
from server.constraint import Constraint
from server.detokenizer import Detokenizer
from server.errors import RequestRefused
from server.options import TRANSCRIPT_BYTES
from server.token_text import TokenText, TokenTexts
from server.tokens import Tokens

logger = logging.getLogger(__name__)


class TextCodec:
    """The tokenizer in a model folder. Thread-safe; its methods block, so keep them off event
    loops.

    With ``context_length`` (tokens), megabytes of text that cannot fit are refused without spending
    seconds on tokenizing them. ``tool_calls`` and ``reasoning``: in which form the model writes
    these (see `server.chat.answer_forms`); by default its chat template tells. ``transcript_bytes``
    bounds the memory for tokens of earlier turns (see `server.chat.transcripts`). Raises ValueError
    when the folder holds no usable tokenizer, or for a form that there is not.
    """

    def __init__(
        self,
        folder: Path,
        context_length: int | None = None,
        *,
        tool_calls: str = AUTO,
        reasoning: str = AUTO,
        transcript_bytes: int = TRANSCRIPT_BYTES,
    ) -> None:
        try:
            chat = _load(folder)
            # The fast tokenizer itself: transformers' wrapper changes state on each call.
            tokenizer: Tokenizer = chat.backend_tokenizer
            self._tokens = Tokens(tokenizer, context_length)
        except (OSError, ValueError, AttributeError) as error:
            raise ValueError(f"no tokenizer can be read in {folder}: {error}") from error
        self.template = ChatTemplate(chat)
        self.transcripts = Transcripts(self._tokens, transcript_bytes)
        self.forms = forms_of(self.template.source, tool_calls, reasoning)
        self._described = None
        if (tool_calls, reasoning) == (AUTO, AUTO):
            self._described = _described_answers(getattr(chat, "response_template", None))
        self._token_texts = TokenTexts(tokenizer)

    @property
    def tokenizer(self) -> Tokenizer:
        """The fast tokenizer itself."""
        return self._tokens.tokenizer

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Token ids of a completion prompt, with the ``special`` tokens that the tokenizer adds;
        where the text has the one for the beginning, as a rendered chat does, not a second one.

        Raises RequestRefused for a text that is too long for the context whatever its tokens are.
        """
        return self._tokens.encode(text, special=special)

    def chat_prompt(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[dict[str, Any]] | None = None,
        *,
        options: ChatOptions = DEFAULT_OPTIONS,
        namespace: Namespace = DEFAULT,
    ) -> ChatPrompt:
        """A conversation up to where the assistant answers, by the model's template. Answers that
        were remembered, to prompts of this namespace, have the tokens that they had.

        Raises RequestRefused when the model has no template or the template refuses the messages.
        """
        text = self.template.render(messages, tools, options)
        tokenized = self.transcripts.tokens(namespace, text)
        return ChatPrompt(
            tokenized.ids,
            text,
            reasons=self.forms.begins_inside(text),
            begun="" if self._described is None else self._described.begun(text),
            remember=tokenized.remember,
        )

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[dict[str, Any]] | None = None,
    ) -> list[int]:
        """Only the tokens of `chat_prompt`, all made from the text."""
        return self._tokens.encode(self.chat_text(messages, tools), special=False)

    def chat_text(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[dict[str, Any]] | None = None,
        *,
        options: ChatOptions = DEFAULT_OPTIONS,
    ) -> str:
        """Only the text of `chat_prompt`."""
        return self.template.render(messages, tools, options)

    def new_parser(
        self,
        *,
        tools: bool,
        definitions: Sequence[dict[str, Any]] = (),
        prompt: ChatPrompt | None = None,
    ) -> AnswerParser:
        """Parts the text of an answer to ``prompt`` into reasoning, content and, with ``tools``,
        calls of the tools that ``definitions`` describe. The text must show `marks`."""
        callable_tools = definitions if tools else None
        if self._described is not None:
            return self._described.parser("" if prompt is None else prompt.begun, callable_tools)
        return self.forms.parser(
            callable_tools,
            inside=prompt is not None and prompt.reasons,
            hidden=[self._token_texts[token].text for token in self.marks(tools=tools)],
        )

    def call_constraint(
        self, definitions: Sequence[dict[str, Any]], prompt: ChatPrompt, *, several: bool
    ) -> Constraint:
        """What an answer that must call one of these tools has to look like; ``several``: more than
        one call may come. Raises RequestRefused where the model's form of calls is not known."""
        try:
            return call_constraint(
                self.forms, definitions, prompt.text, self._tokens.added_id, several=several
            )
        except ValueError as error:
            raise RequestRefused(
                f"tool_choice cannot be enforced: {error}. Leave it out, or start the server with "
                "--tool-call-form hermes (or another that it knows)",
                param="tool_choice",
                code="unsupported_parameter",
            ) from None

    def reasoning_before(self, prompt: ChatPrompt) -> str:
        """What may come before an answer with a constraint, as `Constraint.before` has it."""
        return reasoning_before(self.forms, prompt.text, self._tokens.added_id)

    def calls_instead(self, definitions: Sequence[dict[str, Any]], *, several: bool) -> str:
        """Calls that may come in place of an answer with a constraint, as `Constraint.instead` has
        it; empty where the model's form of calls is not known."""
        return calls_instead(self.forms, definitions, self._tokens.added_id, several=several)

    @property
    def call_openings(self) -> frozenset[int]:
        """The tokens that begin tool calls and nothing else."""
        ids = map(self._tokens.added_id, self.forms.openings)
        return frozenset(each for each in ids if each is not None)

    def knows_variable(self, name: str) -> bool:
        """Whether the chat template looks at a variable of this name."""
        return self.template.knows(name)

    def marks(self, *, tools: bool) -> frozenset[int]:
        """The special tokens that an answer's text must show for its parser, which hides them."""
        if self._described is not None:
            return self._tokens.special_ids
        ids = map(self._tokens.added_id, self.forms.marks(tools=tools))
        return frozenset(each for each in ids if each in self._tokens.special_ids)

    @property
    def takes_tools(self) -> bool:
        """Whether the chat template shows tool definitions to the model."""
        return self.template.takes_tools

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        """The text of some tokens; ``special`` ones are shown only on request."""
        return self._tokens.decode(ids, special=special)

    def token_names(self, ids: Sequence[int]) -> list[str | None]:
        """How the tokenizer's vocabulary writes tokens; None for those that it has not."""
        return self._tokens.names(ids)

    def token_text(self, token: int) -> TokenText:
        """How a token looks by itself."""
        return self._token_texts[token]

    def detokenizer(
        self, prompt: Sequence[int], shown: frozenset[int] | None = frozenset()
    ) -> Detokenizer:
        """Text for an answer to this prompt, token by token; of the special tokens it shows those
        in ``shown`` (None: all)."""
        hidden = frozenset() if shown is None else self._tokens.special_ids - shown
        return self._tokens.detokenizer(prompt, hidden)


def _described_answers(template: Any) -> DescribedAnswers | None:
    try:
        return None if template is None else DescribedAnswers(template)
    except ValueError as error:
        logger.warning("the tokenizer's response_template is not used: %s", error)
        return None


def _load(folder: Path) -> Any:
    if (folder / "tokenizer.json").is_file():
        # Complete by itself. AutoTokenizer would first import the model's configuration class and,
        # with it, seconds' worth of modules that nothing here needs.
        return PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, local_files_only=True)
