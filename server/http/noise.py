"""Noise at the head of a body's system prompt, whichever API the body is of."""

from __future__ import annotations

from typing import Any

from server.head_noise import NoiseFilter

NOISE_HEADER = "X-Stripped-Head-Noise"
_SYSTEM_ROLES = ("system", "developer")


class CleanHead:
    """Takes the noise out of one body. ``pieces``: how many there were."""

    def __init__(self, noise: NoiseFilter) -> None:
        self._noise = noise
        self.pieces = 0

    def strip(self, data: dict[str, Any]) -> None:
        """Change a parsed body, of which nothing was checked yet: its ``system``, and its
        ``messages`` up to the first that is not the system's. Nobody else's words are touched."""
        if "system" in data:
            data["system"], empty = self._without(data["system"])
            if empty:
                del data["system"]
                return
        messages = data.get("messages")
        while isinstance(messages, list) and messages and isinstance(messages[0], dict):
            first = messages[0]
            if first.get("role") not in _SYSTEM_ROLES:
                return
            first["content"], empty = self._without(first.get("content"))
            if not empty or len(messages) == 1:
                return
            del messages[0]

    def header(self) -> dict[str, str]:
        """What tells the client how much was taken out; empty where nothing was."""
        return {NOISE_HEADER: str(self.pieces)} if self.pieces else {}

    def _without(self, content: Any) -> tuple[Any, bool]:
        """A system prompt, a string or a list of parts, without the noise at its head; and whether
        nothing else was in it."""
        if isinstance(content, str):
            cleaned, pieces = self._noise.strip(content)
            self.pieces += pieces
            return cleaned, bool(pieces) and not cleaned
        if not isinstance(content, list):
            return content, False
        found = False
        while content and isinstance(content[0], dict):
            part = content[0]
            text = part.get("text")
            if part.get("type") != "text" or not isinstance(text, str):
                break
            part["text"], pieces = self._noise.strip(text)
            self.pieces += pieces
            found = found or bool(pieces)
            if not pieces or part["text"]:
                break
            del content[0]
        return (content or "", found and not content)
