"""Which form a model speaks, and the parser for it."""

from __future__ import annotations

import pytest

from server.chat.answer_forms import AnswerForms, forms_of
from server.chat.events import ToolCallBegin
from server.chat.reasoning import ReasoningTags
from tests.server_chat.parsing import message_of, parse

THINK = ReasoningTags("<think>", "</think>")
TOOLS = [{"type": "function", "function": {"name": "f"}}]

# What the templates of these families say to their models, shortened.
QWEN3 = (
    "return a json object within <tool_call></tool_call> XML tags:\\n<tool_call>\\n"
    '{\\"name\\": <function-name>, \\"arguments\\": <args>}\\n</tool_call> '
    "{% if '</think>' in message.content %}"
)
CODER = "<tool_call>\\n<function=example>\\n<parameter=one>\\nvalue\\n</parameter>\\n</function>"
LLAMA = 'Respond in the format {"name": function name, "parameters": dictionary of its values}.'
MISTRAL_3 = "{{ '[TOOL_CALLS] [' }}{{ '[AVAILABLE_TOOLS]' }}"
MISTRAL_13 = "{{ '[TOOL_CALLS]' + name + '[ARGS]' + arguments }}[THINK] [/THINK]"
GLM = "<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>\n</tool_call></think>"
KIMI = "<|tool_calls_section_begin|><|tool_call_begin|> <tool_call>"


@pytest.mark.parametrize(
    ("template", "forms"),
    [
        (QWEN3, AnswerForms("hermes", THINK)),
        (CODER, AnswerForms("qwen-xml", None)),
        (LLAMA, AnswerForms("llama", None)),
        (MISTRAL_3, AnswerForms("mistral", None)),
        (MISTRAL_13, AnswerForms("mistral", ReasoningTags("[THINK]", "[/THINK]"), True)),
        (GLM, AnswerForms("none", THINK)),
        (KIMI, AnswerForms("none", None)),
        ("{{ message.content }}", AnswerForms("none", None)),
        ("", AnswerForms("none", None)),
    ],
)
def test_the_chat_template_tells(template: str, forms: AnswerForms) -> None:
    assert forms_of(template) == forms


def test_what_is_given_counts_more_than_the_template() -> None:
    assert forms_of(QWEN3, "llama", "none") == AnswerForms("llama", None)
    assert forms_of("", "hermes", "think") == AnswerForms("hermes", THINK)
    with pytest.raises(ValueError, match="tool call form must be one of auto, mistral"):
        forms_of("", "claude")
    with pytest.raises(ValueError, match="reasoning form must be one of auto, think"):
        forms_of("", "auto", "yes")


@pytest.mark.parametrize(
    ("prompt", "inside"),
    [
        ("<|im_start|>assistant\n<think>\n", True),
        ("<|im_start|>assistant\n<think>", True),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
        ("<|im_start|>assistant\n", False),
        ("what is <think>?<|im_end|>\n<|im_start|>assistant\n", False),
    ],
)
def test_an_answer_begins_inside_where_the_prompt_has_opened_the_reasoning(
    prompt: str, inside: bool
) -> None:
    assert forms_of(QWEN3).begins_inside(prompt) == inside
    assert not forms_of(LLAMA).begins_inside(prompt)


@pytest.mark.parametrize(
    ("form", "call"),
    [
        ("hermes", '<tool_call>{"name": "f", "arguments": {}}</tool_call>'),
        ("qwen-xml", "<tool_call><function=f></function></tool_call>"),
        ("llama", '{"name": "f", "parameters": {}}'),
        ("mistral", "[TOOL_CALLS]f[ARGS]{}"),
    ],
)
def test_each_form_has_its_parser(form: str, call: str) -> None:
    forms = forms_of("", form)
    message = message_of(lambda: forms.parser(TOOLS, inside=False), call)
    assert (message.content, message.calls) == ("", [("f", "{}")])
    without = message_of(lambda: forms.parser(None, inside=False), call)
    assert (without.content, without.calls) == (call, []), "no tools, no calls"


def test_ids_are_such_as_mistrals_templates_take() -> None:
    forms = forms_of("", "mistral")
    events = parse(lambda: forms.parser(TOOLS, inside=False), ["[TOOL_CALLS]f[ARGS]{}"])
    assert isinstance(events[0], ToolCallBegin)
    assert len(events[0].call_id) == 9
    assert events[0].call_id.isalnum()


def test_marks_of_calls_are_shown_only_where_calls_are_looked_for() -> None:
    forms = forms_of(MISTRAL_13)
    assert forms.marks(tools=False) == ("[THINK]", "[/THINK]")
    assert set(forms.marks(tools=True)) >= {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]"}
