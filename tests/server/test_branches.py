from __future__ import annotations

from radix_engine.cache import CacheMode, Namespace
from scheduler import Request
from server.branches import branch_of


def test_a_branch_is_asked_for_what_its_parent_is() -> None:
    parent = Request(
        1,
        [5, 6, 7],
        9,
        frozenset({2}),
        namespace=Namespace(tenant="t"),
        mode=CacheMode.BYPASS,
        priority=3,
        deadline=4.5,
    )
    branch = branch_of(parent, 2)
    assert branch.request_id == 2
    assert (branch.max_new_tokens, branch.stop_token_ids) == (9, frozenset({2}))
    assert (branch.namespace, branch.mode) == (Namespace(tenant="t"), CacheMode.BYPASS)
    assert (branch.priority, branch.deadline, branch.stores) == (3, 4.5, False)
    assert (branch.tokens.tolist(), branch.num_prompt_tokens) == ([5, 6, 7], 3)
    assert branch.whole_run == parent.whole_run


def test_branches_share_one_copy_of_the_prompt_until_they_fork_off() -> None:
    parent = Request(1, [5, 6, 7], 9)
    branch = branch_of(parent, 2)
    assert branch.tokens is parent.tokens
    assert branch.run is parent.run
