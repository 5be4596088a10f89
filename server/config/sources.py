"""What was set where: on the command line, else in the environment, else in a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from server.config.option import PREFIX, Option
from server.config.toml_file import read_file
from server.nearest import did_you_mean

CONFIG_VARIABLE = PREFIX + "CONFIG"
DEFAULT = "default"

Texts = Mapping[str, Sequence[str]]


class ConfigError(ValueError):
    """A setting that cannot be. The message names where it was made, the limit and the remedy."""


@dataclass(frozen=True, slots=True)
class Setting:
    """An option's value. ``texts``: as it was written, one text but for a list; empty where nothing
    was and there is no default. ``source``: where, such as ``--port`` or ``RADIX_PORT``."""

    option: Option
    value: object
    texts: Sequence[str]
    source: str


def settle(
    options: Sequence[Option], flags: Texts, environment: Mapping[str, str], file: str | None
) -> dict[str, Setting]:
    """The setting of each option, by its name. Raises ConfigError.

    ``flags``: what the command line has, by the option's name. ``file``: a TOML file, or None.
    """
    try:
        in_file = {} if file is None else read_file(Path(file), options)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    settings = {}
    for option in options:
        name, variable = option.name, environment.get(option.variable, "")
        if name in flags:
            texts, source = flags[name], option.flag
        elif variable:  # an empty one is as good as none: that is how many a script clears it
            texts, source = variable.split(",") if option.is_list else [variable], option.variable
        elif name in in_file:
            texts, source = in_file[name], f"{file}: {name}"
        else:
            texts, source = [] if option.default is None else [option.default], DEFAULT
        settings[name] = Setting(option, _read(option, texts, source), texts, source)
    return settings


def unknown_variables(options: Iterable[Option], environment: Mapping[str, str]) -> list[str]:
    """A warning for each variable that looks like one of ours and is none. Shows no value."""
    known = [*(option.variable for option in options), CONFIG_VARIABLE]
    return [
        f"{name} in the environment has no effect; {did_you_mean(name, known)}"
        for name in sorted(environment)
        if name.startswith(PREFIX) and name not in known
    ]


def _read(option: Option, texts: Sequence[str], source: str) -> object:
    try:
        values = [option.read(text.strip()) for text in texts]
    except ValueError as error:
        raise ConfigError(f"{source}: {error}") from None
    if option.is_list:
        return tuple(values)
    return values[0] if values else None
