"""Random use of `PromptTrie` and every order beside the loops of `NaivePrompts`."""

from __future__ import annotations

from random import Random

from radix_engine.cache import DEFAULT, CacheMode, Namespace
from scheduler.order import Order, make_order
from scheduler.prompt_trie import PromptTrie
from scheduler.request import Request
from scheduler.trie_node import TrieNode
from tests.scheduler.naive_prompts import NaivePrompts, nodes_below

NAMESPACES = [DEFAULT, DEFAULT, DEFAULT, Namespace(tenant="t")]
MODES = [CacheMode.DEFAULT] * 6 + [CacheMode.READ_ONLY, CacheMode.WRITE_ONLY, CacheMode.BYPASS]


class PromptsUse:
    """One order's requests; each step does something and compares what trie and order say.

    Prompts are spelled in blocks that differ in their last token, or in their first.
    """

    def __init__(self, name: str, seed: int) -> None:
        self.random = Random(seed)
        self.name = name
        self.size = self.random.choice([1, 2, 4])
        self.letters = self.random.choice(["aab", "abc"])
        self.most_requests = self.random.choice([8, 20])
        self.naive = NaivePrompts(self.size)
        self.trie = PromptTrie(self.size)
        self.order: Order = make_order(name, self.trie)
        self.out: dict[int, Request] = {}  # taken, neither started nor put back
        self.gone: list[Request] = []
        self.taken: list[Request] = []  # the latest last, without those put back
        self.arrivals = 0
        self.now = 0.0

    def step(self) -> None:
        """Anything that may happen next."""
        random = self.random
        few = len(self.naive.requests) < self.most_requests
        act = random.choice(
            [
                *[self.arrive] * (6 if few else 1),
                *[self.leave] * (1 if few else 4),
                *[self.take] * 5,
                *[self.cover, self.settle] * 2,
                self.start,
                self.store_no_more,
                self.come_back,
                self.put_back,
                self.take_all,
            ]
        )
        act()
        self.compare()

    # What happens to requests

    def arrive(self) -> None:
        random = self.random
        middle = [0] * (self.size - 1)
        blocks = {"a": [0, *middle], "b": [*middle, 1], "c": [2, *middle]}
        letters = random.choices(self.letters, k=random.randrange(7))
        prompt = [token for letter in letters for token in blocks[letter]]
        self.arrivals += 1
        request = Request(
            self.arrivals,
            prompt + [0] * random.randint(not prompt, 3),
            1,
            namespace=random.choice(NAMESPACES),
            mode=random.choice(MODES),
            priority=random.randrange(3),
        )
        request.arrival = self.arrivals
        request.arrived_s = self.now
        self.add(request)

    def come_back(self) -> None:
        if self.gone:
            self.add(self.gone.pop(self.random.randrange(len(self.gone))))

    def add(self, request: Request) -> None:
        found = self.random.randrange(len(self.naive.path(request)) // 4 + 1)
        found -= found % self.size
        asked: list[Request] = []

        def look_up(node: TrieNode) -> int:
            asked.append(request)
            return found

        asks = self.naive.asks(request)
        self.naive.add(request, found)
        self.trie.add(request, look_up)
        assert len(asked) == asks
        self.order.add(request)

    def start(self) -> None:
        waiting = self.naive.waiting()
        if waiting:
            request = self.random.choice(waiting)
            self.order.discard(request)
            self.run(request)

    def run(self, request: Request) -> None:
        self.out.pop(request.request_id, None)
        self.naive.running.add(request.request_id)
        if request.mode.stores:
            self.naive.storing.add(request.request_id)
        self.trie.start(request)

    def store_no_more(self) -> None:
        running = [r for r in self.naive.requests.values() if r.request_id in self.naive.running]
        if running:
            request = self.random.choice(running)
            self.naive.storing.discard(request.request_id)
            self.trie.stores_no_more(request)

    def leave(self) -> None:
        if self.naive.requests:
            request = self.random.choice(list(self.naive.requests.values()))
            self.order.discard(request)
            self.out.pop(request.request_id, None)
            self.naive.remove(request)
            self.trie.remove(request)
            self.gone.append(request)

    # What happens to the cache

    def cover(self) -> None:
        reading = [r for r in self.naive.requests.values() if r.mode.reads]
        running = [r for r in reading if r.request_id in self.naive.running]
        choices = running if self.random.random() < 0.8 else reading
        if choices:
            request = self.random.choice(choices)
            tokens = self.random.randint(0, request.num_prompt_tokens)
            self.naive.cover(request, tokens)
            self.trie.cover(request, tokens)

    def settle(self) -> None:
        if self.naive.requests:
            request = self.random.choice(list(self.naive.requests.values()))
            found = self.random.randrange(len(self.naive.path(request)) // 4 // self.size + 1)
            differs = found != self.naive.cached_blocks(request)
            self.naive.settle(request, found * self.size)
            assert self.trie.settle(request, found * self.size) == differs

    # Who comes first

    def take(self) -> None:
        request = self.take_best()
        if request is not None and self.random.random() < 0.5:
            self.run(request)

    def take_all(self) -> None:
        while self.take_best() is not None:
            pass
        self.put_back()

    def put_back(self) -> None:
        for request in self.out.values():
            self.order.add(request)
        self.out.clear()

    def take_best(self) -> Request | None:
        self.now += 1.0
        choices = self.choices()
        request = self.order.best(self.now)
        if request is None:
            assert choices == []
            return None
        assert request in choices
        self.out[request.request_id] = request
        self.taken.append(request)
        return request

    def choices(self) -> list[Request]:
        waiting = [r for r in self.naive.waiting() if r.request_id not in self.out]
        if self.name == "lpm":
            return self.naive.longest_match(waiting)
        if self.name == "dfs":
            offered = {request.request_id for request in waiting}
            while self.taken and self.taken[-1].request_id in offered:
                self.taken.pop()
            return self.naive.depth_first(waiting, self.taken[-1] if self.taken else None)
        if self.name == "hrrn":
            return self.naive.response_ratio(waiting, self.now)
        if self.name == "priority":
            return sorted(waiting, key=lambda r: (-r.priority, r.arrival))[:1]
        return sorted(waiting, key=lambda r: r.arrival)[:1]

    # What the trie says

    def compare(self) -> None:
        naive, trie = self.naive, self.trie
        assert len(trie) == len(naive.requests)
        for request in naive.requests.values():
            assert trie.cached_tokens(request) == naive.cached_blocks(request) * self.size
            if request.request_id not in naive.running:
                assert trie.blocked(request) == naive.blocked(request)
        for node, key, run in nodes_below(trie.root):
            through = naive.through(key, run)
            running = [r for r in through if r.request_id in naive.running]
            assert node.waiting == len(through) - len(running)
            assert node.running == sum(r.request_id in naive.storing for r in running)
            assert node.ends == sum(naive.path(r) == run for r in through)
            assert node.end == len(run)
            assert node.ends or len(node.children) > (node.start < node.end)
            assert node.start <= node.cover <= node.end
            assert (node.covered or set()) == {c for c in node.children.values() if c.is_covered}
            assert not node.covered or node.cover == node.end
