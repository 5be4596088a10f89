"""What chat templates are given: arguments, names and reasoning as they expect them."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from server.chat.prompt import ChatOptions
from server.chat.template import RESERVED, ChatTemplate
from server.errors import RequestRefused
from tests.server_chat.tiny_tokenizer import write_tokenizer

CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city":  "Oslo", "x": 1e-05}'},
}
HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "cold", "tool_call_id": "call_1"},
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerFast:
    folder = write_tokenizer(tmp_path_factory.mktemp("tokenizer"))
    return PreTrainedTokenizerFast.from_pretrained(folder)


def template(tokenizer: PreTrainedTokenizerFast, source: str) -> ChatTemplate:
    changed = SimpleNamespace(chat_template=source)
    changed.apply_chat_template = lambda *args, **kwargs: tokenizer.apply_chat_template(
        *args, chat_template=source, **kwargs
    )
    return ChatTemplate(changed)


def rendered(tokenizer: PreTrainedTokenizerFast, each: str) -> str:
    source = "{% for m in messages %}" + each + "{% endfor %}"
    return template(tokenizer, source).render(HISTORY, None, ChatOptions())


def test_a_template_that_takes_both_gets_the_models_own_words(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    text = rendered(
        tokenizer,
        "{% for c in m.tool_calls or [] %}"
        "{{ c.function.arguments if c.function.arguments is string "
        "else c.function.arguments | tojson }}"
        "{% endfor %}",
    )
    assert text == '{"city":  "Oslo", "x": 1e-05}'


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("{{ c.function.arguments | tojson }}", '{"city": "Oslo", "x": 1e-05}'),
        (
            "{% for k, v in c.function.arguments | items %}{{ k }}={{ v }};{% endfor %}",
            "city=Oslo;x=1e-05;",
        ),
        (
            "{% if c.function.arguments is mapping %}{{ c.function.arguments | tojson }}"
            "{% else %}raw: {{ c.function.arguments }}{% endif %}",
            '{"city": "Oslo", "x": 1e-05}',
        ),
    ],
)
def test_a_template_that_wants_an_object_gets_one(
    tokenizer: PreTrainedTokenizerFast, written: str, text: str
) -> None:
    each = "{% for c in m.tool_calls or [] %}" + written + "{% endfor %}"
    assert rendered(tokenizer, each) == text


def test_a_template_that_knows_only_text_gets_text(tokenizer: PreTrainedTokenizerFast) -> None:
    each = "{% for c in m.tool_calls or [] %}{{ '<' + c.function.arguments + '>' }}{% endfor %}"
    assert rendered(tokenizer, each) == '<{"city":  "Oslo", "x": 1e-05}>'


def test_arguments_that_are_no_json_are_given_as_they_are(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    source = (
        "{% for m in messages %}{% for c in m.tool_calls or [] %}"
        "{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}"
    )
    broken = {"type": "function", "function": {"name": "f", "arguments": '{"a": '}}
    messages = [{"role": "assistant", "content": "", "tool_calls": [broken]}]
    assert template(tokenizer, source).render(messages, None, ChatOptions()) == '"{\\"a\\": "'


def test_a_tools_answer_has_the_name_of_the_tool(tokenizer: PreTrainedTokenizerFast) -> None:
    each = (
        "{% if m.role == 'tool' %}{% if m.name is not defined %}"
        "{{ raise_exception('who?') }}{% endif %}{{ m.name }}: {{ m.content }}{% endif %}"
    )
    assert rendered(tokenizer, each) == "weather: cold"
    assert "name" not in HISTORY[2], "what the client sent is left as it is"


def test_reasoning_of_earlier_turns_reaches_the_template(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    source = "{% for m in messages %}{{ m.reasoning_content }}|{{ m.thinking }}{% endfor %}"
    messages = [{"role": "assistant", "content": "a", "reasoning_content": "hm"}]
    assert template(tokenizer, source).render(messages, None, ChatOptions()) == "hm|hm"


def test_variables_and_an_open_end(tokenizer: PreTrainedTokenizerFast) -> None:
    source = (
        "{% for m in messages %}<{{ m.content }}>{% endfor %}"
        "{% if add_generation_prompt %}{{ 'think' if enable_thinking else 'go' }}{% endif %}"
    )
    made, user = template(tokenizer, source), {"role": "user", "content": "a"}
    answer = {"role": "assistant", "content": "b"}
    assert made.render([user], None, ChatOptions(variables={"enable_thinking": True})) == "<a>think"
    assert made.render([user], None, ChatOptions(add_generation_prompt=False)) == "<a>"
    open_end = ChatOptions(add_generation_prompt=False, continue_final_message=True)
    assert made.render([user, answer], None, open_end) == "<a><b"
    assert (made.knows("enable_thinking"), made.knows("thinking")) == (True, False)


def test_no_variable_can_be_taken_for_an_argument() -> None:
    names = set(inspect.signature(PreTrainedTokenizerFast.apply_chat_template).parameters)
    assert names - {"self", "kwargs"} <= RESERVED


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('not like this') }}",
        "{{ messages[0].content + 1 }}",
        "{{ messages[7].role.x }}",
        "{{ 1 // 0 }}",
    ],
)
def test_whatever_a_template_cannot_do_is_a_refusal(
    tokenizer: PreTrainedTokenizerFast, source: str
) -> None:
    with pytest.raises(RequestRefused, match="chat template refuses") as refusal:
        template(tokenizer, source).render([{"role": "user", "content": "a"}], None, ChatOptions())
    assert refusal.value.param == "messages"
