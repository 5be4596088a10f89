"""Small tokenizers for tests: bytes, a few merges, and tokens of their own for marks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers.pre_tokenizers import ByteLevel

BOS, START, END = "<|bos|>", "<|im_start|>", "<|im_end|>"
MERGES = ("a b", "ab c", "t h", "th e", "l o", "o k")


def write_tokenizer(
    folder: Path,
    template: str = "",
    *,
    special: Sequence[str] = (BOS, START, END),
    added: Sequence[str] = ("<think>", "</think>", "<tool_call>", "</tool_call>"),
    adds_bos: bool = False,
    config: Mapping[str, Any] | None = None,
) -> Path:
    """Write a byte-level tokenizer: ``special`` tokens, and ``added`` ones that show in texts; with
    ``adds_bos`` it puts the first special one before a plain text."""
    vocabulary = {character: index for index, character in enumerate(sorted(ByteLevel.alphabet()))}
    for merge in MERGES:
        vocabulary[merge.replace(" ", "")] = len(vocabulary)
    tokens = [
        {
            "id": len(vocabulary) + index,
            "content": content,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": content in special,
        }
        for index, content in enumerate((*special, *added))
    ]
    level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    first = {"id": special[0], "ids": [len(vocabulary)], "tokens": [special[0]]}
    adding = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": special[0], "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {special[0]: first},
    }
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": vocabulary,
        "merges": [merge.split(" ") for merge in MERGES],
    }
    whole = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": tokens,
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": adding if adds_bos else None,
        "decoder": level,
        "model": model,
    }
    named = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": special[0],
        "eos_token": special[-1],
        "chat_template": template,
        **(config or {}),
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(whole), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(named), encoding="utf-8")
    return folder
