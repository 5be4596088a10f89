"""The file of API keys: what it says, and what is said where it is wrong."""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path

import pytest

from server.key_file import KeyFileError, read_key_file
from server.key_ring import KeyRing
from server.tenants import KeyHolder, Keys, TenantLimits

ACME, SECOND, BETA, OPERATOR = (f"{name}-{'0123456789abcdef' * 2}" for name in "abco")
GOOD = f"""
[tenants.acme]
max_in_flight = 32
max_queued = 64

[[keys]]
key = "{ACME}"
tenant = "acme"

[[keys]]
key = "{SECOND}"
tenant = "acme"

[[keys]]
sha256 = "{hashlib.sha256(BETA.encode()).hexdigest().upper()}"
tenant = "beta"

[[keys]]
key = "{OPERATOR}"
operator = true
"""


def write(folder: Path, text: str, name: str = "keys.toml") -> Path:
    path = folder / name
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")
    return path


def check(keys: Keys) -> None:
    assert keys.holder_of(ACME) == keys.holder_of(SECOND) == KeyHolder("acme", False)
    assert keys.holder_of(BETA) == KeyHolder("beta", False)
    assert keys.holder_of(OPERATOR) == KeyHolder(None, True)
    assert keys.holder_of(ACME[:-1]) is None
    assert keys.holder_of("") is None
    assert keys.limits_of("acme") == TenantLimits(32, 64)
    assert keys.limits_of("beta") == keys.limits_of(None) == TenantLimits(None, None)


def test_keys_belong_to_tenants_and_tenants_have_limits(tmp_path: Path) -> None:
    keys, warnings = read_key_file(write(tmp_path, GOOD))
    check(keys)
    assert warnings == []


def test_json_says_the_same(tmp_path: Path) -> None:
    data = {
        "tenants": {"acme": {"max_in_flight": 32, "max_queued": 64}},
        "keys": [
            {"key": ACME, "tenant": "acme"},
            {"key": SECOND, "tenant": "acme"},
            {"sha256": hashlib.sha256(BETA.encode()).hexdigest(), "tenant": "beta"},
            {"key": OPERATOR, "operator": True},
        ],
    }
    keys, warnings = read_key_file(write(tmp_path, json.dumps(data), "keys.json"))
    check(keys)
    assert warnings == []


def test_an_operators_key_may_be_a_tenants_too(tmp_path: Path) -> None:
    text = f'keys = [{{key = "{ACME}", tenant = "acme", operator = true}}]'
    keys, _ = read_key_file(write(tmp_path, text))
    assert keys.holder_of(ACME) == KeyHolder("acme", True)


def one(**fields: object) -> str:
    return json.dumps({"keys": [fields]})


SECRET = "s3cr3t-that-nobody-may-read"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("keys.toml", f'[[keys]]\nkey = "{SECRET}\n', ("TOML", "line 2")),
        ("keys.json", '{"keys": [}', ("JSON", "line 1 column 11")),
        ("keys.json", f'["{SECRET}"]', ("object", "keys")),
        ("keys.toml", "", ("keys is missing or empty",)),
        ("keys.json", '{"keys": []}', ("keys is missing or empty",)),
        ("keys.json", json.dumps({SECRET: "acme"}), ("at the top", "known: keys, tenants")),
        ("keys.json", '{"keyz": []}', ("did you mean keys?",)),
        ("keys.json", f'{{"keys": ["{SECRET}"]}}', ("keys[0]", "table")),
        ("keys.json", one(tenant="a"), ("keys[0]", "one of key and sha256", "openssl rand")),
        ("keys.json", one(key=SECRET, sha256="0" * 64, tenant="a"), ("keys[0]", "one of")),
        ("keys.json", one(sha256=SECRET, tenant="a"), ("keys[0].sha256", "64 hex", "sha256sum")),
        ("keys.json", one(key=SECRET + " x", tenant="a"), ("keys[0].key", "ASCII")),
        ("keys.json", one(key=SECRET + "\u00e9", tenant="a"), ("keys[0].key", "ASCII")),
        ("keys.json", one(key="", tenant="a"), ("keys[0].key", "openssl rand")),
        ("keys.json", one(key=5, tenant="a"), ("keys[0].key", "string")),
        ("keys.json", one(key=SECRET), ("keys[0].tenant is missing", "operator = true")),
        ("keys.json", one(key=SECRET, tenant=""), ("keys[0].tenant", "1 to 100")),
        ("keys.json", one(key=SECRET, tenant="a\nb"), ("keys[0].tenant", "printable")),
        ("keys.json", one(key=SECRET, tenant="a", operator=1), ("keys[0].operator", "true")),
        ("keys.json", one(key=SECRET, tennant="a"), ("keys[0]", "did you mean tenant?")),
        (
            "keys.json",
            json.dumps({"keys": [{"key": SECRET, "tenant": t} for t in "ab"]}),
            ("keys[1] is the same key as keys[0]",),
        ),
        (
            "keys.json",
            json.dumps(
                {"keys": [{"key": SECRET, "tenant": "a"}], "tenants": {"a": {"max_queue": 1}}}
            ),
            ("tenants.a", "did you mean max_queued?"),
        ),
        (
            "keys.json",
            json.dumps(
                {"keys": [{"key": SECRET, "tenant": "a"}], "tenants": {"a": {"max_queued": 0}}}
            ),
            ("tenants.a.max_queued", "from 1", "not 0", "leave it out"),
        ),
        (
            "keys.json",
            json.dumps(
                {"keys": [{"key": SECRET, "tenant": "a"}], "tenants": {"a": {"max_queued": True}}}
            ),
            ("tenants.a.max_queued", "whole number"),
        ),
        ("keys.json", json.dumps({"keys": [{"key": SECRET}], "tenants": 5}), ("tenants",)),
    ],
)
def test_what_is_wrong_is_named_with_file_and_place_and_shows_no_key(
    tmp_path: Path, name: str, text: str, words: tuple[str, ...]
) -> None:
    path = write(tmp_path, text, name)
    with pytest.raises(KeyFileError) as wrong:
        read_key_file(path)
    message = str(wrong.value)
    assert message.startswith(f"{path}: ")
    assert [word for word in words if word not in message] == [], message
    assert SECRET not in message


def test_a_file_that_is_not_there_is_named_with_its_option(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match=r"gone\.toml: .*No such file.*--api-key-file"):
        read_key_file(tmp_path / "gone.toml")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o622, 0o610])
def test_a_file_that_others_may_use_is_warned_of(tmp_path: Path, mode: int) -> None:
    path = write(tmp_path, GOOD)
    path.chmod(mode)
    _, warnings = read_key_file(path)
    assert len(warnings) == 1
    assert f"{mode:04o}" in warnings[0]
    assert "chmod 600" in warnings[0]


def test_what_is_probably_a_slip_is_warned_of(tmp_path: Path) -> None:
    text = 'keys = [{key = "short", tenant = "acme"}]\n[tenants.akme]\nmax_queued = 5\n'
    _, warnings = read_key_file(write(tmp_path, text))
    short, unused, nobody = warnings
    assert "keys[0].key" in short
    assert "16 characters" in short
    assert "tenants.akme has limits, but no key" in unused
    assert "acme" in unused
    assert "no key has operator = true" in nobody
    assert not any("'short'" in line or '"short"' in line for line in warnings)


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def replaced(path: Path, text: str) -> None:
    """As a careful tool writes: another file takes the name at once."""
    write(path.parent, text, "new").replace(path)


def test_a_changed_file_is_read_again_within_a_second(tmp_path: Path) -> None:
    path, clock = write(tmp_path, GOOD), Clock()
    ring = KeyRing(path, clock)
    assert ring.keys.holder_of(ACME) is not None
    replaced(path, GOOD.replace(ACME, "n" * 40).replace("32", "3"))
    clock.time += 0.9
    assert ring.keys.holder_of(ACME) is not None, "looked at too often"
    clock.time += 0.1
    assert ring.keys.holder_of(ACME) is None
    assert ring.keys.holder_of("n" * 40) == KeyHolder("acme", False)
    assert ring.keys.limits_of("acme") == TenantLimits(3, 64)


def test_an_unchanged_file_is_not_read_again(tmp_path: Path) -> None:
    clock = Clock()
    ring = KeyRing(write(tmp_path, GOOD), clock)
    before = ring.keys
    clock.time += 5
    assert ring.keys is before


@pytest.mark.parametrize("broken", ["[[keys]]\n", "not even TOML", None])
def test_a_change_that_cannot_be_read_leaves_the_keys_and_is_logged_once(
    tmp_path: Path, broken: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    path, clock = write(tmp_path, GOOD), Clock()
    ring = KeyRing(path, clock)
    if broken is None:
        path.unlink()
    else:
        replaced(path, broken)
    for _ in range(3):
        clock.time += 2
        check(ring.keys)
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "the keys stay as they were" in record.getMessage()
    assert str(path) in record.getMessage()
    replaced(path, GOOD.replace("acme", "ajax"))
    clock.time += 2
    assert ring.keys.holder_of(ACME) == KeyHolder("ajax", False)


def test_reload_reads_at_once(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    ring = KeyRing(path, Clock())
    replaced(path, GOOD.replace("acme", "ajax"))
    ring.reload()
    assert ring.keys.holder_of(ACME) == KeyHolder("ajax", False)
