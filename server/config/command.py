"""The command line of ``python -m server``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from server.config.option import Option
from server.config.printed import as_toml
from server.config.server_options import ServerOptions, make_options
from server.config.sources import (
    CONFIG_VARIABLE,
    ConfigError,
    settle,
    unknown_variables,
)
from server.config.table import OPTIONS
from server.nearest import did_you_mean

_WRONG = 2  # the exit status of a command line that is wrong


def parse(
    arguments: Sequence[str] | None = None, environment: Mapping[str, str] | None = None
) -> ServerOptions:
    """The options of a command line (None: this process's), an environment (likewise) and a file.

    The strongest source of each option counts: the command line, a variable RADIX_..., the TOML
    file of --config, its default. Ends the process with a message and status 2 where something is
    wrong, and with status 0 after --help and --print-config.
    """
    environment = os.environ if environment is None else environment
    try:
        given = _given(arguments)
        file = given.pop("config", None) or environment.get(CONFIG_VARIABLE) or None
        is_printed = given.pop("print_config", False)
        settings = settle(OPTIONS, given, environment, file)
        options = make_options(settings, tuple(unknown_variables(OPTIONS, environment)))
    except ConfigError as error:
        print(f"error: {error}\npython -m server --help lists all options", file=sys.stderr)
        raise SystemExit(_WRONG) from None
    if is_printed:
        print(as_toml(settings.values()))
        for line in options.warnings:
            print(f"warning: {line}", file=sys.stderr)
        raise SystemExit(0)
    return options


def _given(arguments: Sequence[str] | None) -> dict[str, Any]:
    """What the command line has: the texts of each option, by name. Raises ConfigError."""
    parser = _parser()
    values, strange = parser.parse_known_args(arguments)
    if strange:
        flags = [option.flag for option in OPTIONS]
        word = strange[0].partition("=")[0]
        raise ConfigError(
            f"{word} is no option; {did_you_mean(word, flags)}"
            if word.startswith("-")
            else f"{word!r} stands alone: values follow an option, as in --model {word}"
        )
    given = vars(values)
    for option in OPTIONS:
        if option.name in given and option.is_switch:
            given[option.name] = ["on" if given[option.name] else "off"]
    return given


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Without the usage, which is long and would bury the message."""
        raise ConfigError(message.removeprefix("argument "))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m server",
        usage="%(prog)s [--OPTION VALUE ...]\n       %(prog)s lint FILE",
        description="Serve a language model over HTTP with a radix-tree prefix cache. Each option "
        "may also be given as a variable of the environment (--kv-memory as RADIX_KV_MEMORY) or in "
        "a TOML file (kv_memory); the command line counts most, then the environment.",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    groups: dict[str, argparse._ArgumentGroup] = {}
    for option in OPTIONS:
        if option.group not in groups:
            groups[option.group] = parser.add_argument_group(option.group)
        _add(groups[option.group], option)
    group = parser.add_argument_group("configuration")
    group.add_argument(
        "--config",
        metavar="FILE",
        help=f"a TOML file of options (default: {CONFIG_VARIABLE}, else none)",
    )
    group.add_argument(
        "--print-config",
        action="store_true",
        help="print all options as such a file, with where each value comes from, and end "
        "(default: serve)",
    )
    return parser


def _add(group: argparse._ArgumentGroup, option: Option) -> None:
    text = f"{option.help} (default: {option.default_words})".replace("%", "%%")
    if option.is_switch:
        action = argparse.BooleanOptionalAction
        group.add_argument(option.flag, dest=option.name, action=action, help=text)
    else:
        kind = "append" if option.is_list else _Once
        group.add_argument(
            option.flag, dest=option.name, action=kind, metavar=option.metavar, help=text
        )


class _Once(argparse.Action):
    """The last one counts."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, [values])
