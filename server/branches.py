"""Several requests to the scheduler for one prompt: one computes it, the others fork off it."""

from __future__ import annotations

from scheduler import Request


def branch_of(parent: Request, request_id: int) -> Request:
    """A request that can fork off ``parent``, whose tokens, limits and ends it has.

    All share the parent's copy of the prompt until then; each gets its own before anything is
    appended.
    """
    branch = Request(
        request_id,
        parent.tokens[:1],
        parent.max_new_tokens,
        parent.stop_token_ids,
        namespace=parent.namespace,
        mode=parent.mode,
        priority=parent.priority,
        deadline=parent.deadline,
        session=parent.session,
    )
    branch.tokens, branch.run = parent.tokens, parent.run
    branch.num_prompt_tokens = parent.num_prompt_tokens
    return branch
