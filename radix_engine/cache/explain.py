"""Why a match ended where it did, and what other memory sizes would have made of it."""

from __future__ import annotations

from radix_engine.cache.lease import Match
from radix_engine.cache.node import Node, usable
from radix_engine.cache.reason import Cause, MatchEnd, Reason
from radix_engine.cache.token_run import TOKEN_BYTES, shared_tokens_bytes
from radix_engine.cache.tree import Tree

# How far down a branch that does not fork its length is looked for.
_MOST_EDGES = 64

_CAPACITY = Cause.CAPACITY  # Python 3.11 finds a member by a function that is written in Python


def explain(tree: Tree, match: Match, tokens: bytes, *, partial_blocks: bool) -> MatchEnd:
    """The reason, and where. Cost: that of a look-up among a node's children, at most."""
    position, size, count = match.num_tokens, tree.block_size, match.prompt_tokens
    if not match.mode.reads:
        return MatchEnd(Reason.BYPASSED, 0)
    # What a match may cover of this prompt (public blocks are not copied from), and how much of it
    # an equal one before has stored.
    most = max(0, count - 1)
    if not partial_blocks or match.public_tokens == count:
        most -= most % size
    storable = count - count % size
    if most and (position >= most or 0 < storable <= position):
        return MatchEnd(Reason.FULL, position)
    if position >= _asked_for(tree, match, partial_blocks=partial_blocks) < most:
        return MatchEnd(Reason.BYPASSED, position)
    shared, branch, in_flight = _next_block(tree, match, tokens)
    if most and in_flight > shared:  # it cannot be copied from yet
        return MatchEnd(Reason.IN_FLIGHT, position)
    at = position - match.copy_rows
    lost = min(most, match.seen_node.start + match.seen_bytes // TOKEN_BYTES) - at
    if lost > 0:
        return MatchEnd(Reason.EVICTED, position, _cause(match), lost - match.copy_rows)
    too_short = not most or not storable
    if not too_short and _elsewhere(tree, match, tokens, at):
        return MatchEnd(Reason.NAMESPACE, position)
    if branch is None:
        branch = _any_branch(tree, match)
    if too_short or (at == 0 and shared > 0 and not position):
        return MatchEnd(Reason.SHORT, max(position, shared))
    if branch is not None and at + shared > 0:
        return MatchEnd(Reason.DIVERGED, at + shared, branch_tokens=_branch_end(tree, branch))
    return MatchEnd(Reason.COLD, position)


def record_reuse(tree: Tree, match: Match) -> None:
    """Count the prompt for the curve of hit rate against memory. Cost: O(depth)."""
    size = tree.block_size
    most = min(max(0, match.prompt_tokens - 1), match.most_tokens) // size * size
    if not match.mode.reads:
        tree.curve.record(match.prompt_tokens, size, 0, ())
        return
    groups: list[tuple[int, int]] = []
    node = match.seen_node
    end = min(most, node.start + match.seen_bytes // TOKEN_BYTES)
    while node.parent is not None and not node.pins:
        cause = node.cause
        if cause and cause is not _CAPACITY and len(node.blocks) * size < end - node.start:
            groups.clear()  # it would be gone whatever the size, and what follows it
            end = node.start + len(node.blocks) * size
        if end > node.start:
            groups.append((node.tick, (end - node.start) // size))
        end = min(end, node.start)
        node = node.parent
    groups.reverse()
    tree.curve.record(match.prompt_tokens, size, end // size, groups)


def _asked_for(tree: Tree, match: Match, *, partial_blocks: bool) -> int:
    """How many tokens a match could cover that was not to cover more than so many."""
    most = match.most_tokens
    whole = not partial_blocks or match.public_tokens == match.prompt_tokens
    return most - most % tree.block_size if whole else most


def _next_block(tree: Tree, match: Match, tokens: bytes) -> tuple[int, Node | None, int]:
    """What is stored after the matched blocks, compared with how the prompt goes on: how many
    tokens it shares with a computed block, and the branch which that is of; how many with a block
    in flight. Nothing below a public path that is not the namespace's own."""
    if not goes_on_in_own(match):
        return 0, None, 0
    node, step, inside = match.node, tree.block_bytes, match.inside_bytes
    start = (match.num_tokens - match.copy_rows) * TOKEN_BYTES
    block = tokens[start : min(start + step, len(tokens) - TOKEN_BYTES)]  # never the last token
    if inside < len(node.run):
        index = inside // step
        if index >= len(node.blocks):
            return 0, None, 0
        following = bytes(node.run[inside : inside + step])
        same = shared_tokens_bytes(block, following) // TOKEN_BYTES
        if index >= len(node.blocks) - node.in_flight:
            return 0, None, same
        return same, node, 0
    in_flight = 0
    if tree.pool.in_flight_blocks:
        in_flight = tree.shared_in_flight(node, block) // TOKEN_BYTES
    computed = tree.nearest_child(node, block)
    if computed is None:
        return 0, None, in_flight
    return computed[1] // TOKEN_BYTES, computed[0], in_flight


def _any_branch(tree: Tree, match: Match) -> Node | None:
    """A stored branch that the prompt left without sharing anything of it: the one used last, or
    the first. None below a public path that is not the namespace's own."""
    node = match.node
    if match.inside_bytes < len(node.run) or not goes_on_in_own(match):
        return None
    if usable(node.hot):
        return node.hot
    return next(iter(tree.some_children(node, 1)), None)


def goes_on_in_own(match: Match) -> bool:
    """Whether what is stored after the matched blocks is for this namespace to know: what hangs on
    a public path is somebody else's."""
    at = match.num_tokens - match.copy_rows
    public = match.public_tokens
    return at > public or not public or match.node.namespace == match.namespace


def _cause(match: Match) -> Cause | None:
    """What took the first block that is missing."""
    if match.inside_bytes < len(match.node.run):
        return match.node.cause
    node = match.seen_node
    while node is not match.node and node.parent is not match.node and node.parent is not None:
        node = node.parent
    return node.cause


def _elsewhere(tree: Tree, match: Match, tokens: bytes, at: int) -> bool:
    """Whether another namespace of the same tenant stores what comes next."""
    tenant = match.namespace.tenant
    if tenant is None or at != match.public_tokens or match.inside_bytes < len(match.node.run):
        return False
    heads = tree.heads.get(tenant)
    if not heads:
        return False
    base = match.node
    while not base.run and base.parent is not None:
        base = base.parent
    start = at * TOKEN_BYTES
    return heads[(id(base), tokens[start : start + tree.block_bytes])] > 0


def _branch_end(tree: Tree, node: Node) -> int:
    """Where a stored branch ends or forks, in tokens from the root; other namespaces that continue
    it are no forks."""
    for _ in range(_MOST_EDGES):
        children = tree.some_children(node, 2) if node.children else []
        if len(children) != 1:
            break
        node = children[0]
    return node.start + (len(node.blocks) - node.in_flight) * tree.block_size
