"""In which API's form a path tells its errors."""

from __future__ import annotations

from server.http.anthropic.errors import anthropic_form
from server.http.errors import ErrorForm, openai_form

MESSAGES = "/v1/messages"


def error_form(path: str) -> ErrorForm:
    """Anthropic's for messages and what is below them; OpenAI's for all else."""
    is_anthropics = path == MESSAGES or path.startswith(f"{MESSAGES}/")
    return anthropic_form if is_anthropics else openai_form
