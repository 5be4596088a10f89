"""A bench whose requests may want their prompts' values: it finds them out, as a server does."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from radix_engine.cache import MISSING_PAYLOAD, CacheMode, PrefixCache, unpack
from radix_engine.cache.audit import walk
from radix_engine.cache.payload import payload_of
from scheduler import Request, StepPlan
from tests.checking_model import Bench, CheckingModel, prefix_hashes

UNKNOWN = None


def value_of(prefix: Sequence[int]) -> float:
    """The value of the last of these tokens; float32 has it exactly."""
    return -(prefix_hashes(prefix)[-1] % 4096) / 16


def values_of(tokens: Sequence[int]) -> list[float | None]:
    """The value of each of these tokens; the first has none."""
    return [UNKNOWN, *(value_of(tokens[: end + 1]) for end in range(1, len(tokens)))]


def known(payload: bytes | bytearray) -> list[float | None]:
    """A payload as values, None where there is none."""
    words = [payload[at : at + 4] for at in range(0, len(payload), 4)]
    return [UNKNOWN if word == MISSING_PAYLOAD else array("f", word)[0] for word in words]


class Valuing(CheckingModel):
    """Computes values from the step's own tokens alone, as logits are there for no others."""

    valued = 0  # values found out, over all steps

    def step(self, plan: StepPlan) -> list[int]:
        for span in plan.spans:
            request, end = span.request, span.start + span.count
            if request.payload is None or span.start >= request.num_prompt_tokens:
                continue
            first, last = request.num_valued_tokens, min(end + 1, request.num_prompt_tokens)
            assert first > span.start or first >= request.num_prompt_tokens, "one is left out"
            request.learn(value_of(request.tokens[: at + 1]) for at in range(first, last))
            self.valued += max(0, last - first)
        return super().step(plan)


class ValuingBench(Bench):
    """``ask`` is for requests that want their prompts' values. Of their answers' it finds out those
    that follow on what is known."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.model: Valuing = Valuing(self.cache)

    def step(self, abort: Sequence[Request] = ()) -> StepPlan:
        plan = super().step(abort)
        self.value_answers()
        return plan

    def value_answers(self) -> None:
        """Find out the values of the tokens that were sampled."""
        for request, _, _ in self.results:
            if request.num_valued_tokens == len(request.tokens) - 1:
                request.learn([value_of(request.tokens)])

    def ask(
        self,
        prompt: Sequence[int],
        max_new_tokens: int = 1,
        *,
        mode: CacheMode = CacheMode.DEFAULT,
        branches: int = 0,
    ) -> Request:
        """Submit a request that wants its prompt's values."""
        first = len(self.requests) + 1
        new = [
            Request(first + index, prompt, max_new_tokens, mode=mode, wants_values=not index)
            for index in range(1 + branches)
        ]
        new[0].branches = new[1:]
        self.scheduler.submit(new[0], self.now)
        self.requests.extend(new)
        return new[0]

    def scored(self, prompt: Sequence[int], mode: CacheMode = CacheMode.DEFAULT) -> Request:
        """Serve one such request to its end."""
        request = self.ask(prompt, mode=mode)
        self.run()
        assert_has_its_values(request)
        return request

    def assert_stored_values_are_right(self) -> None:
        """Every value in the tree is that of its token after those before it."""
        assert isinstance(self.cache, PrefixCache)
        for node in walk(self.cache.root):
            path, above = unpack(bytes(node.run)), node.parent
            while above is not None:
                path, above = [*unpack(bytes(above.run)), *path], above.parent
            expected = values_of(path)[node.start :] if path else []
            for found, right in zip(known(payload_of(node)), expected, strict=True):
                assert found in (UNKNOWN, right)


def assert_has_its_values(request: Request) -> None:
    """Those of its prompt, all of them."""
    assert request.payload is not None
    prompt = request.tokens[: request.num_prompt_tokens].tolist()
    assert known(request.payload)[: len(prompt)] == values_of(prompt)
