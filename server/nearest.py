"""What somebody who misspelt a name may have meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``did you mean port?``, or all names there are where none is near."""
    listed = list(known)
    near = get_close_matches(name, listed, n=1)
    return f"did you mean {near[0]}?" if near else f"known: {', '.join(listed)}"
