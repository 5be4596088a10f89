"""A strict stand-in for the `flashinfer` package, in plain torch, on any device.

It computes what the real kernels compute, in float32, and refuses (`fake_checks.Rejected`) what
they silently get wrong or crash on. It knows only the arguments that this project uses.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.gpu import fake_cache, fake_cascade, fake_decode, fake_ops, fake_prefill, fake_sampling

FUNCTIONS: tuple[Callable[..., Any], ...] = (
    fake_cache.append_paged_kv_cache,
    fake_cache.get_batch_indices_positions,
    fake_cache.get_seq_lens,
    fake_cache.merge_state,
    fake_cache.merge_states,
    fake_ops.apply_rope_pos_ids_inplace,
    fake_ops.apply_llama31_rope_pos_ids_inplace,
    fake_ops.apply_rope_with_cos_sin_cache_inplace,
    fake_ops.rmsnorm,
    fake_ops.fused_add_rmsnorm,
    fake_ops.silu_and_mul,
    fake_sampling.softmax,
    fake_sampling.top_k_mask_logits,
    fake_sampling.top_p_renorm_probs,
)
WRAPPERS: tuple[type, ...] = (
    fake_prefill.BatchPrefillWithPagedKVCacheWrapper,
    fake_decode.BatchDecodeWithPagedKVCacheWrapper,
    fake_decode.CUDAGraphBatchDecodeWithPagedKVCacheWrapper,
    fake_cascade.MultiLevelCascadeAttentionWrapper,
)
METHODS = ("__init__", "plan", "run")


class FakeFlashInfer:
    """What `make_fake` returns: the real package's names, and how often each was called.

    ``calls`` counts by name: "rmsnorm", and of a wrapper "<class>.__init__", ".plan" and ".run".
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        for function in FUNCTIONS:
            setattr(self, function.__name__, self._counted(function.__name__, function))
        for wrapper in WRAPPERS:
            name = wrapper.__name__
            methods = {m: self._counted(f"{name}.{m}", getattr(wrapper, m)) for m in METHODS}
            setattr(self, name, type(name, (wrapper,), methods))

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] += 1
            return function(*args, **kwargs)

        return counted

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the fake flashinfer has no {name}")


def make_fake() -> FakeFlashInfer:
    """A fake of its own: counters begin at 0."""
    return FakeFlashInfer()
