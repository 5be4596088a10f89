"""Which sequences with one query each are worth computing together."""

from __future__ import annotations

from collections.abc import Sequence

# One call for many short contexts saves the fixed cost of a call (worth about 500 rows of
# attention on a CPU); beyond some thousand rows what was gathered no longer fits a processor's
# cache, and one call each is faster.
MAX_PADDING = 512
MAX_ROWS = 4096


def group_decodes(
    contexts: Sequence[int], max_padding: int = MAX_PADDING, max_rows: int = MAX_ROWS
) -> list[list[int]]:
    """Split sequences, given by their context lengths in tokens, into groups of similar length.

    A group is padded to its longest member. It holds at most ``max_rows`` rows with padding, of
    which at most ``max_padding`` are padding; a longer sequence is a group of its own. Returns
    indices into ``contexts``; each is in exactly one group. Cost: a sort.
    """
    groups: list[list[int]] = []
    longest = padding = 0
    for i in sorted(range(len(contexts)), key=lambda i: (-contexts[i], i)):
        padding += longest - contexts[i]
        rows = (len(groups[-1]) + 1) * longest if groups else 0
        if groups and padding <= max_padding and rows <= max_rows:
            groups[-1].append(i)
        else:
            groups.append([i])
            longest, padding = contexts[i], 0
    return groups
