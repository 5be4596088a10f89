"""The file of API keys: whose they are, and how much a tenant may ask for at a time.

::

    [tenants.acme]              # optional
    max_in_flight = 32          # requests that have come and not ended
    max_queued = 64             # of these, requests that wait to be started

    [[keys]]
    key = "the key itself"      # or sha256 = "its SHA-256 in hexadecimal"
    tenant = "acme"             # several keys may have the same

    [[keys]]
    sha256 = "..."
    operator = true             # a tenant's as well, if one is named

A file that ends in .json has the same names: {"tenants": {"acme": {...}}, "keys": [{...}]}.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from server.nearest import did_you_mean
from server.tenants import KeyHolder, Keys, TenantLimits, key_hash

MAX_TENANT_CHARACTERS = 100
SHORT_KEY = 16

_HASH = re.compile(r"[0-9a-fA-F]{64}")
_SENDABLE = re.compile(r"[\x21-\x7e]+")  # what a header can carry without quotes
_NEW_KEY = "make one with: openssl rand -hex 32"


class KeyFileError(ValueError):
    """The file cannot be read, or is wrong. The message names the file and the place, and shows no
    key."""


def read_key_file(path: Path) -> tuple[Keys, list[str]]:
    """The keys in a file, and warnings for its owner. Raises KeyFileError."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = _parse(file.read(), is_json=path.suffix.lower() == ".json")
        keys, warnings = _keys(data)
    except OSError as error:
        raise KeyFileError(
            f"{path}: cannot be read: {error.strerror}; see --api-key-file"
        ) from None
    except ValueError as error:
        raise KeyFileError(f"{path}: {error}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        permissions = stat.S_IMODE(mode)
        warnings.append(f"others may use it (mode {permissions:04o}); forbid it with chmod 600")
    return keys, [f"{path}: {line}" for line in warnings]


def _parse(content: bytes, *, is_json: bool) -> dict[str, Any]:
    language = "JSON" if is_json else "TOML"
    try:
        text = content.decode("utf-8")
        data = json.loads(text) if is_json else tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from None
    except ValueError as error:  # of either parser, with line and column
        raise ValueError(f"is not valid {language}: {error}") from None
    except RecursionError:
        raise ValueError(f"is not valid {language}: nested too deeply") from None
    if not isinstance(data, dict):
        raise ValueError('must be an object with "keys" and, if wanted, "tenants"')
    return data


def _keys(data: dict[str, Any]) -> tuple[Keys, list[str]]:
    _only(data, ("keys", "tenants"), "")
    entries = data.get("keys")
    if not isinstance(entries, list) or not entries:
        raise ValueError("keys is missing or empty: without one nobody could send a request")
    tables = data.get("tenants", {})
    if not isinstance(tables, dict):
        raise ValueError("tenants must be a table, with a table [tenants.NAME] for each")
    limits = {_tenant(name, "tenants"): _limits(table, name) for name, table in tables.items()}
    holders: dict[bytes, KeyHolder] = {}
    places: dict[bytes, str] = {}
    warnings: list[str] = []
    for index, entry in enumerate(entries):
        where = f"keys[{index}]"
        if not isinstance(entry, dict):
            raise ValueError(f"{where} must be a table with key or sha256, and tenant")
        found = _hash_of(entry, where, warnings)
        if found in holders:
            raise ValueError(f"{where} is the same key as {places[found]}; leave one of them out")
        holders[found], places[found] = _holder(entry, where), where
    return Keys(holders, limits), warnings + _odd(holders, limits)


def _hash_of(entry: Mapping[str, Any], where: str, warnings: list[str]) -> bytes:
    _only(entry, ("key", "sha256", "tenant", "operator"), where)
    key, digest = entry.get("key"), entry.get("sha256")
    if (key is None) == (digest is None):
        raise ValueError(f"{where} must have one of key and sha256; {_NEW_KEY}")
    if digest is not None:
        if not isinstance(digest, str) or _HASH.fullmatch(digest) is None:
            raise ValueError(
                f"{where}.sha256 must be a SHA-256 in 64 hexadecimal digits; "
                "make it with: printf %s KEY | sha256sum"
            )
        return bytes.fromhex(digest)
    if not isinstance(key, str) or _SENDABLE.fullmatch(key) is None:
        raise ValueError(
            f"{where}.key must be a string of visible ASCII characters without spaces, as a header "
            f"can carry it; {_NEW_KEY}"
        )
    if len(key) < SHORT_KEY:
        warnings.append(
            f"{where}.key is shorter than {SHORT_KEY} characters and may be guessed; {_NEW_KEY}"
        )
    return key_hash(key)


def _holder(entry: Mapping[str, Any], where: str) -> KeyHolder:
    is_operator = entry.get("operator", False)
    if not isinstance(is_operator, bool):
        raise ValueError(f"{where}.operator must be true or false")
    if "tenant" in entry:
        return KeyHolder(_tenant(entry["tenant"], f"{where}.tenant"), is_operator)
    if not is_operator:
        raise ValueError(f"{where}.tenant is missing; only a key with operator = true needs none")
    return KeyHolder(None, is_operator)


def _tenant(name: object, where: str) -> str:
    if (
        not isinstance(name, str)
        or not name.isprintable()
        or not 1 <= len(name) <= MAX_TENANT_CHARACTERS
    ):
        raise ValueError(
            f"{where}: a tenant's name must be a string of 1 to {MAX_TENANT_CHARACTERS} printable "
            "characters"
        )
    return name


def _limits(table: object, tenant: str) -> TenantLimits:
    where = f"tenants.{tenant}"
    if not isinstance(table, dict):
        raise ValueError(f"{where} must be a table with max_in_flight, max_queued or both")
    _only(table, ("max_in_flight", "max_queued"), where)
    for name, value in table.items():
        if type(value) is not int or value < 1:
            raise ValueError(
                f"{where}.{name} must be a whole number from 1, not {str(value)[:60]}; leave it "
                "out for any number"
            )
    return TenantLimits(**table)


def _odd(holders: Mapping[bytes, KeyHolder], limits: Mapping[str, TenantLimits]) -> list[str]:
    """What is allowed, and probably a slip."""
    tenants = sorted({each.tenant for each in holders.values() if each.tenant is not None})
    lines = [
        f"tenants.{name} has limits, but no key is its own; keys are {', '.join(tenants) or 'none'}"
        for name in limits
        if name not in tenants
    ]
    if not any(each.is_operator for each in holders.values()):
        lines.append(
            "no key has operator = true, so that nobody can look at metrics and the tree, or "
            "administer the cache"
        )
    return lines


def _only(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for name in table:
        if name not in known:  # not shown: a file in another form may have a key in its place
            place = f"a field of {where}" if where else "a name at the top"
            raise ValueError(f"{place} is not known; {did_you_mean(name, known)}")
