"""A configuration as the TOML file that would make it."""

from __future__ import annotations

import json
from collections.abc import Iterable

from server.config.sources import Setting

_COLUMN = 40


def as_toml(settings: Iterable[Setting]) -> str:
    """One line for each option, with where its value comes from. What is not set is a comment."""
    lines = ["# What holds, and where each value comes from. --config reads such a file."]
    group = ""
    for setting in settings:
        option = setting.option
        if option.group != group:
            group = option.group
            lines += ["", f"# {group}"]
        if setting.texts:
            written = f"{option.name} = {_value(setting)}"
            lines.append(f"{written:<{_COLUMN}}  # {setting.source}")
        else:
            lines.append(f"# {option.name} is not set; by default: {option.default_words}")
    return "\n".join(lines)


def _value(setting: Setting) -> str:
    value, texts = setting.value, setting.texts
    if setting.option.is_list:
        return f"[{', '.join(map(_string, texts))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)) and _is_number(texts[0]):
        return repr(value)
    return _string(texts[0])


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _string(text: str) -> str:
    # JSON's strings are TOML's, save for one character that TOML wants escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
