"""Small tokenizers: one cuts bytes, the other characters, with single bytes where it has none."""

from __future__ import annotations

from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

from tests.tiny import IM_END, make_tiny_folder

BYTE_END = IM_END
PIECE_END = 2


def byte_level(folder: Path) -> Tokenizer:
    """As GPT-2's, Llama 3's and Qwen's: 512 tokens, the last ones special."""
    make_tiny_folder(folder, tokenizer=True)
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def pieces() -> Tokenizer:
    """As Llama 2's and Mistral's: spaces are marked, and bytes stand for rare characters."""
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": PIECE_END}
    for byte in range(256):
        vocabulary[f"<0x{byte:02X}>"] = len(vocabulary)
    for character in '\u2581abcdefghijklmnopqrstuvwxyz{}[]":,.0123456789\u00e9':
        vocabulary[character] = len(vocabulary)
    merges = [("\u2581", "t"), ("h", "e"), ("\u2581t", "he"), ("a", "b"), ("\u2581", "\u2581")]
    for left, right in merges:
        vocabulary[left + right] = len(vocabulary)
    tokenizer = Tokenizer(
        models.BPE(
            vocab=vocabulary, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True
        )
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens(
        [AddedToken(name, special=True) for name in ("<unk>", "<s>", "</s>")]
    )
    tokenizer.add_tokens([AddedToken("<think>", special=False, normalized=False)])
    return tokenizer
