"""Flags before the environment before a file before defaults, for every option."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.config.printed import as_toml
from server.config.sources import DEFAULT, ConfigError, settle, unknown_variables
from server.config.table import OPTIONS
from tests.config.values import BY_NAME, texts_of

Given = Mapping[str, list[str]]


@st.composite
def some_options(draw: st.DrawFn) -> dict[str, list[str]]:
    """Texts for some of the options, by name."""
    names = draw(st.sets(st.sampled_from(sorted(BY_NAME))))
    found = {}
    for name in sorted(names):
        option = BY_NAME[name]
        text = st.sampled_from(texts_of(option))
        most = 3 if option.is_list else 1
        found[name] = draw(st.lists(text, min_size=1, max_size=most, unique=True))
    return found


def as_environment(given_: Given) -> dict[str, str]:
    return {"RADIX_" + name.upper(): ",".join(texts) for name, texts in given_.items()}


def written(given_: Given, path: Path) -> str:
    """As somebody may write a file: names in either form, all as strings."""
    lines = []
    for count, (name, texts) in enumerate(given_.items()):
        name = name.replace("_", "-") if count % 2 else name
        strings = [json.dumps(text, ensure_ascii=False) for text in texts]
        value = strings[0] if len(strings) == 1 else "[" + ", ".join(strings) + "]"
        lines.append(f"{name} = {value}\n")
    path.write_text("".join(lines), encoding="utf-8")
    return str(path)


@settings(deadline=None)
@given(flags=some_options(), variables=some_options(), in_file=some_options())
def test_the_strongest_source_of_each_option_counts(
    tmp_path_factory: pytest.TempPathFactory, flags: Given, variables: Given, in_file: Given
) -> None:
    file = written(in_file, tmp_path_factory.getbasetemp() / "sources.toml")
    settings = settle(OPTIONS, flags, as_environment(variables), file)
    assert list(settings) == [option.name for option in OPTIONS]
    for name, setting in settings.items():
        if name in flags:
            expected, source = flags[name], "--" + name.replace("_", "-")
        elif name in variables:
            expected, source = variables[name], "RADIX_" + name.upper()
        elif name in in_file:
            expected, source = in_file[name], f"{file}: {name}"
        else:
            assert setting.source == DEFAULT
            continue
        assert (list(setting.texts), setting.source) == (expected, source)
        values = [BY_NAME[name].read(text) for text in expected]
        assert setting.value == (tuple(values) if BY_NAME[name].is_list else values[0])


@settings(deadline=None)
@given(some_options())
def test_what_is_printed_makes_the_same_configuration(
    tmp_path_factory: pytest.TempPathFactory, flags: Given
) -> None:
    settings = settle(OPTIONS, flags, {}, None)
    path = tmp_path_factory.getbasetemp() / "printed.toml"
    path.write_text(as_toml(settings.values()), encoding="utf-8")
    again = settle(OPTIONS, {}, {}, str(path))
    assert {name: each.value for name, each in again.items()} == {
        name: each.value for name, each in settings.items()
    }


def test_an_empty_variable_is_none() -> None:
    settings = settle(OPTIONS, {}, {"RADIX_PORT": "", "RADIX_MODEL": ""}, None)
    assert (settings["port"].value, settings["port"].source) == (8000, DEFAULT)
    assert settings["model"].value is None


def test_a_variable_that_is_none_of_ours_is_warned_of_without_its_value() -> None:
    environment = {
        "RADIX_API_KEY": "s3cr3t",
        "RADIX_MAX_RUNING": "5",
        "RADIX_PORT": "1",
        "RADIX_CONFIG": "x",
        "PATH": "/bin",
    }
    lines = unknown_variables(OPTIONS, environment)
    assert len(lines) == 2
    assert "RADIX_API_KEY" in lines[0]
    assert "RADIX_MAX_RUNING" in lines[1]
    assert "did you mean RADIX_MAX_RUNNING?" in lines[1]
    assert not any("s3cr3t" in line for line in lines)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prot = 1", ("prot is no option", "did you mean port?")),
        ("zzzz = 1", ("zzzz is no option", "known: model, dtype")),
        ("port = 70000", (": port: must be a whole number from 0 to 65535, not '70000'",)),
        ("port = 1.5", (": port: ", "'1.5'")),
        ("max-running = 0", (": max_running: must be a whole number from 1",)),
        ("port = 1\nport = 2", ("not valid TOML", "Cannot overwrite")),
        ("max_running = 1\nmax-running = 2", ("max-running is there twice",)),
        ("[http]\nport = 1", ("http is no option",)),
        ("model = {name = 1}", ("model must be a string", "not in tables")),
        ("port = [1, 2]", ("port must be a string, a number",)),
        ("cors_origin = ['*', 5, [6]]", ("cors_origin[2] must be",)),
        ("fair = 'maybe'", ("fair: must be on or off, not 'maybe'",)),
    ],
)
def test_a_wrong_file_is_named_with_the_place(
    tmp_path: Path, text: str, words: tuple[str, ...]
) -> None:
    path = tmp_path / "server.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as wrong:
        settle(OPTIONS, {}, {}, str(path))
    message = str(wrong.value)
    assert message.startswith(str(path))
    assert [word for word in words if word not in message] == [], message


def test_a_file_has_numbers_and_booleans_or_strings(tmp_path: Path) -> None:
    path = tmp_path / "server.toml"
    path.write_text(
        "port = 9\nfair = true\nprefix_cache = false\ngrace = 2.5\nmax_waiting = 0\n"
        "max_running = '7'\nmax_body_size = 2048\ncors_origin = ['https://A.example']\n"
    )
    found = settle(OPTIONS, {}, {}, str(path))
    names = ("port", "fair", "prefix_cache", "grace", "max_waiting", "max_running")
    assert [found[name].value for name in names] == [9, True, False, 2.5, None, 7]
    assert found["max_body_size"].value == 2048
    assert found["cors_origin"].value == ("https://a.example",)


def test_a_missing_file_is_named_with_its_option(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: .*--config"):
        settle(OPTIONS, {}, {}, str(tmp_path / "none.toml"))
