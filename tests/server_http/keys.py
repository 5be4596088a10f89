"""A file of keys for tests: two tenants and an operator."""

from __future__ import annotations

from pathlib import Path

from server.key_ring import KeyRing

ACME, BETA, OPERATOR = (f"{name}-{'0123456789abcdef' * 2}" for name in "abo")


def write_keys(path: Path, limits: str = "") -> Path:
    """``limits``: tables of tenants."""
    path.touch(mode=0o600)
    path.write_text(
        f"""{limits}
[[keys]]
key = "{ACME}"
tenant = "acme"
[[keys]]
key = "{BETA}"
tenant = "beta"
[[keys]]
key = "{OPERATOR}"
operator = true
"""
    )
    return path


def ring(folder: Path, limits: str = "") -> KeyRing:
    """Their keys."""
    return KeyRing(write_keys(folder / "keys.toml", limits))


def bearer(key: str) -> dict[str, str]:
    """The header that sends a key."""
    return {"Authorization": f"Bearer {key}"}
