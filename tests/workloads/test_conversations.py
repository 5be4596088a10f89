"""ShareGPT-style files as sessions."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.workloads.trace_files import array_file, lines_file
from workloads.traces.lines import TraceError
from workloads.traces.reading import read_rows, select_sessions
from workloads.traces.session import Call, Message, after_reply, prompt_of


def talk(*parts: tuple[str, str], **fields: object) -> dict[str, object]:
    return {"conversations": [{"from": who, "value": said} for who, said in parts], **fields}


TWO_TURNS = talk(("system", "be kind"), ("human", "hi"), ("gpt", "hello"), ("human", "bye"))


def test_each_answer_is_a_call_and_a_last_question_has_none(tmp_path: Path) -> None:
    (session,) = select_sessions(lines_file(tmp_path, TWO_TURNS), 9).sessions
    assert session.calls == (
        Call((Message("system", "be kind"), Message("user", "hi")), "hello"),
        Call((Message("user", "bye"),), None),
    )
    assert session.id == "conversation-1"
    assert not session.timed


def test_an_array_reads_as_the_same_rows_a_line_do_packed_or_not(tmp_path: Path) -> None:
    rows = [TWO_TURNS, talk(("human", "naïve ✓"), ("gpt", "1.5"), id="x")]
    lines, array = lines_file(tmp_path, *rows), array_file(tmp_path, *rows)
    packed = tmp_path / "t.json.gz"
    packed.write_bytes(gzip.compress(array.read_bytes()))
    read = [select_sessions(path, 9).sessions for path in (lines, array, packed)]
    assert read[0] == read[1] == read[2]
    assert [session.id for session in read[0]] == ["conversation-1", "x"]


def test_answers_to_nothing_belong_to_the_next_prompt(tmp_path: Path) -> None:
    parts = [
        ("gpt", "a"),
        ("gpt", "a0"),
        ("human", "q1"),
        ("gpt", "a1"),
        ("gpt", "a2"),
        ("human", "q3"),
    ]
    path = lines_file(tmp_path, talk(*parts, ("chatgpt", "a3")))
    (session,) = select_sessions(path, 9).sessions
    history: tuple[Message, ...] = ()
    prompts = []
    for call in session.calls:
        prompts.append([message.content for message in prompt_of(history, call)])
        history = after_reply(prompt_of(history, call), call, "")
    assert prompts == [["a", "a0", "q1"], ["a", "a0", "q1", "a1", "a2", "q3"]]
    assert history[-1] == Message("assistant", "a3")


def test_speakers_that_no_template_knows_become_user_under_a_heading(tmp_path: Path) -> None:
    path = lines_file(tmp_path, talk(("human", "q"), ("gpt", "a"), ("tool", "42"), ("gpt", "b")))
    chosen = select_sessions(path, 9)
    assert chosen.sessions[0].calls[1].messages == (Message("user", "Tool result:\n42"),)
    assert chosen.mapped_roles == {"tool": 1}


def test_two_conversations_of_one_id_are_two_sessions_and_empty_ones_none(tmp_path: Path) -> None:
    one = talk(("human", "q"), ("gpt", "a"), id="x", lang="en")
    alone = talk(("gpt", "hello?"))
    chosen = select_sessions(lines_file(tmp_path, one, talk(id="e"), alone, one), 9)
    assert [session.id for session in chosen.sessions] == ["x", "x (2)"]
    assert chosen.ignored_fields == {"lang": 2, "conversations in which nobody asks": 2}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"conversations": "hi"}, "conversations must be a list, is a string"),
        ({"conversations": ["hi"]}, r"conversations\[0\] must be an object, is a string"),
        (talk(("human", "q"), ("gpt", None)), r"conversations\[1\].value must be a string"),  # type: ignore[arg-type]
        ({"conversations": [{"value": "q"}]}, r"conversations\[0\].from must be a string, is null"),
        (talk(("human", "q"), id=[]), "id must be a string"),
        ("hi", "must be a JSON object, is a string"),
    ],
)
def test_what_is_out_of_form_is_refused_with_its_place_and_field(
    tmp_path: Path, bad: object, message: str
) -> None:
    with pytest.raises(TraceError, match=rf"t\.jsonl, line 2: {message}"):
        list(read_rows(lines_file(tmp_path, TWO_TURNS, bad)))
    with pytest.raises(TraceError, match=rf"t\.json, element 2: {message}"):
        list(read_rows(array_file(tmp_path, TWO_TURNS, bad)))


def test_a_broken_array_is_refused_behind_its_last_good_element(tmp_path: Path) -> None:
    path = array_file(tmp_path, TWO_TURNS, TWO_TURNS)
    whole = path.read_text()
    for broken in (whole[:-3], whole.replace('"bye"', "bye")):
        path.write_text(broken)
        with pytest.raises(TraceError, match=r"t\.json, after element \d: not JSON"):
            list(read_rows(path))


def test_an_array_is_read_element_by_element(tmp_path: Path) -> None:
    path = array_file(tmp_path, *[TWO_TURNS] * 2000)
    path.write_text(path.read_text()[:-2] + "oops")
    rows = read_rows(path)
    assert next(rows).call.reply == "hello"  # the fault at the end is not seen yet
