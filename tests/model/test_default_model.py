"""The default model computes, token for token, what transformers computes with it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from radix_engine.model.load import load_model
from radix_engine.model.runner import ModelRunner
from radix_engine.model.source import resolve_model
from tests.model.helpers import greedy

PROMPTS = [
    "Gravity is",
    "def fibonacci(n):\n",
    "The three laws of robotics were written by Isaac Asimov. " * 10 + "The first of them says",
]


@pytest.mark.slow
def test_greedy_answers_of_the_default_model_equal_those_of_transformers() -> None:
    folder = resolve_model(None)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder.path)
    reference: Any = AutoModelForCausalLM.from_pretrained(folder.path, dtype=torch.float32)
    runner = ModelRunner(load_model(folder, torch.float32), 64)
    question = [{"role": "user", "content": "What is the capital of France?"}]
    chat = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_dict=False)
    for prompt in [chat, *(tokenizer.encode(text) for text in PROMPTS)]:
        generated = reference.generate(
            torch.tensor([prompt]), max_new_tokens=12, do_sample=False, eos_token_id=None
        )
        expected = generated[0, len(prompt) :].tolist()
        assert greedy(runner, prompt, 12, range(10, 64)) == expected
    assert "Paris" in tokenizer.decode(greedy(runner, chat, 10, range(64)))
