"""Options in a TOML file: ``max_running = 32``, named as on the command line without dashes."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

from server.config.option import Option
from server.nearest import did_you_mean


def read_file(path: Path, options: Sequence[Option]) -> dict[str, list[str]]:
    """The texts of the options that a file sets, by name. Raises ValueError that names the file and
    the place."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}; see --config") from None
    except ValueError as error:  # the parser's has the line
        raise ValueError(f"{path}: is not valid TOML in UTF-8: {error}") from None
    by_name = {option.name: option for option in options}
    found: dict[str, list[str]] = {}
    for written, value in data.items():
        name = written.replace("-", "_")
        option = by_name.get(name)
        if option is None:
            raise ValueError(f"{path}: {written} is no option; {did_you_mean(name, by_name)}")
        if name in found:
            raise ValueError(f"{path}: {written} is there twice, with _ and with -")
        found[name] = _texts(value, option, f"{path}: {written}")
    return found


def _texts(value: object, option: Option, where: str) -> list[str]:
    if isinstance(value, list) and option.is_list:
        return [_text(each, f"{where}[{index}]") for index, each in enumerate(value)]
    return [_text(value, where)]


def _text(value: object, where: str) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, (str, int, float)):
        return str(value)
    raise ValueError(
        f"{where} must be a string, a number, or true or false; options are not in tables"
    )
