"""Emu3.5's text tokenizer, read from its lists, against byte-pair merging one by one, as tiktoken does it."""

import random
import unicodedata
from base64 import b64encode
from collections import Counter
from itertools import pairwise
from pathlib import Path

import lantern  # noqa: F401  (first: see its docstring)

# isort: split
import pytest
import regex
from support.paths import ROOT
from transformers import PreTrainedTokenizerBase

from lantern.models.hf.emu35 import PATTERN, SPECIAL, VISION_WORDS, WORDS, read_words

VISION = ["<|image token|>", "<|image start|>", "<|visual token 000000|>"]
MERGES = 300


def merged(piece: list[bytes], pair: tuple[bytes, bytes]) -> list[bytes]:
    made: list[bytes] = []
    for part in piece:
        if made and (made[-1], part) == pair:
            made[-1] += part
        else:
            made.append(part)
    return made


def learnt(text: str) -> dict[bytes, int]:
    """Byte pairs by how frequent they are in a text."""
    pieces = [[bytes([byte]) for byte in piece.encode()] for piece in regex.findall(PATTERN, text)]
    ranks = {bytes([byte]): byte for byte in range(256)}
    for _ in range(MERGES):
        pair, _ = Counter(pair for piece in pieces for pair in pairwise(piece)).most_common(1)[0]
        ranks.setdefault(b"".join(pair), len(ranks))
        pieces = [merged(piece, pair) for piece in pieces]
    return ranks


def slow_ids(text: str, ranks: dict[bytes, int]) -> list[int]:
    """A piece that is a token is one; of others the pair of lowest rank is merged first."""
    ids = []
    for piece in regex.findall(PATTERN, unicodedata.normalize("NFC", text)):
        parts = [piece.encode()] if piece.encode() in ranks else [bytes([byte]) for byte in piece.encode()]
        while known := [pair for pair in pairwise(parts) if b"".join(pair) in ranks]:
            parts = merged(parts, min(known, key=lambda pair: ranks[b"".join(pair)]))
        ids += [ranks[part] for part in parts]
    return ids


@pytest.fixture(scope="module")
def words(tmp_path_factory) -> tuple[PreTrainedTokenizerBase, dict[bytes, int]]:
    ranks = learnt((ROOT / "README.md").read_text()[:3000] + " é ü 你好 世界 12345" * 9)
    folder: Path = tmp_path_factory.mktemp("words")
    lines = (f"{b64encode(token).decode()} {rank}" for token, rank in ranks.items())
    (folder / WORDS).write_text("\n".join(lines))
    (folder / VISION_WORDS).write_text("\n".join(VISION) + "\n")
    return read_words(folder), ranks


def test_words_are_merged_by_the_order_of_the_list(words):
    """Catches merges in another order, digits in groups, and accents that are not composed."""
    text, ranks = words
    draw = random.Random(0)
    lines = (ROOT / "README.md").read_text().splitlines()
    lines += ["".join(draw.choices("abc e\u0301é你1 .\n'sS<|>", k=60)) for _ in range(100)]
    assert [text(line, add_special_tokens=False).input_ids for line in lines] == [
        slow_ids(line, ranks) for line in lines
    ]
    assert max(len(ranks_of) for ranks_of in ranks) > 4


def test_special_tokens_follow_the_words_in_the_order_of_the_lists(words):
    text, ranks = words
    named = [*SPECIAL, *VISION]
    assert text.convert_tokens_to_ids(named) == list(range(len(ranks), len(ranks) + len(named)))
    found = text("a<|extra_203|>b", add_special_tokens=False).input_ids
    assert found == [ranks[b"a"], len(ranks) + named.index("<|extra_203|>"), ranks[b"b"]]
