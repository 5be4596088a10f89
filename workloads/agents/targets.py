"""What a benchmark talks to: servers of our own, or any that speak OpenAI's API, each by a name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class Target:
    """One server by the name that tables and figures give it.

    ``url`` None means a server of our own, started with its prefix cache on or off (``cache``).
    ``model`` is sent with every request; None asks the server which one it has. ``key`` is sent
    as a bearer token and appears nowhere else.
    """

    name: str
    url: str | None = None
    cache: bool = True
    model: str | None = None
    key: str | None = field(default=None, repr=False)


def own_targets(caches: Sequence[bool]) -> tuple[Target, ...]:
    """Servers of our own, named after their prefix caches: on, off."""
    return tuple(Target("on" if cache else "off", cache=cache) for cache in caches)


def parse_target(text: str) -> Target:
    """``NAME=URL`` or ``URL``, whose name then is its host and port.

    A ``/v1`` at the end, as OpenAI's clients want it, is left out. Raises ValueError.
    """
    name, equals, url = text.partition("=")
    if not equals or "://" in name:
        name, url = "", text
    elif not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a target's name: use letters, digits, points, - and _, as in NAME=URL"
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{url!r} is not a URL: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is not a URL such as http://127.0.0.1:8000")
    if parts.query or parts.fragment or parts.username:
        raise ValueError(
            f"{parts.hostname}: a target's URL has no query, fragment or user name; "
            "a key comes by --api-key-env"
        )
    host = f"{parts.hostname}:{port}" if port else parts.hostname
    return Target(name or host, url.rstrip("/").removesuffix("/v1"))


def with_access(
    targets: Sequence[Target],
    model: str | None,
    key_variables: Sequence[str],
    environment: Mapping[str, str],
) -> tuple[Target, ...]:
    """The targets with a model's name and with keys read from the environment.

    A variable is given as ``VARIABLE`` for all targets or ``NAME=VARIABLE`` for one. Raises
    ValueError for one that is not set and for a name that no target has.
    """
    names = {target.name for target in targets}
    keys: dict[str, str] = {}
    for text in key_variables:
        name, equals, variable = text.rpartition("=")
        if equals and name not in names:
            raise ValueError(f"{text!r} names no target; there are {', '.join(sorted(names))}")
        if not environment.get(variable):
            raise ValueError(f"the environment variable {variable!r} is not set or empty")
        for each in [name] if equals else sorted(names):
            keys[each] = environment[variable]
    return tuple(replace(each, model=model, key=keys.get(each.name)) for each in targets)


def repeated_name(targets: Sequence[Target]) -> str | None:
    """A name that two targets have, or None."""
    seen: set[str] = set()
    for target in targets:
        if target.name in seen:
            return target.name
        seen.add(target.name)
    return None


def in_turn(targets: Sequence[Target], number: int) -> list[Target]:
    """Who comes when in a round: everybody once, each time another first."""
    return [targets[(index + number) % len(targets)] for index in range(len(targets))]
