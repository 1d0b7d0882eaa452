"""Prompts from a named list of data/prompts, a literal list, or a text file with one prompt per line; and each image's
copy number and noise seed."""

import json
import os
import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from lantern.errors import LanternError
from lantern.noise import image_seed
from lantern.runtime.files import is_file

DEV_SHARE = 4  # one prompt in so many is for tuning
SPLITS = ("all", "dev", "test")
LINE_END = re.compile(r"\r\n|\n|\r")  # str.splitlines also splits at rarer characters
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")  # tab and line feed left out
UNPRINTABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
MAX_NAME = 56  # letters of a prompt in a file name


def load_prompts(source: str | Sequence[str], folder: str | Path) -> list[str]:
    """source: the name of a list in `folder`, a literal list, or a file; blank lines are skipped."""
    if isinstance(source, Sequence) and not isinstance(source, str):
        return _without_blanks([str(prompt).strip() for prompt in source], "the prompt list")
    named = Path(folder) / f"{source}.txt"
    path = named if is_file(named) else Path(os.path.expanduser(str(source)))
    return _without_blanks(LINE_END.split(_read(path, Path(folder))), str(path))


def decode_text(content: bytes) -> str:
    """UTF-8, or UTF-16 where a byte order mark says so. Other bytes become lone surrogates, which is_text finds."""
    if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        with suppress(UnicodeDecodeError):
            return content.decode("utf-16")
    return content.decode("utf-8-sig", errors="surrogateescape")


def is_text(text: str) -> bool:
    """Whether a text can be written as UTF-8: it has no lone surrogate."""
    return text.isascii() or re.search("[\ud800-\udfff]", text) is None


def printable(text: str) -> str:
    """The text in one line, without what a terminal would obey or could not show."""
    return UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], text)


def prompt_records(source: str | Sequence[str], folder: str | Path) -> list[dict]:
    """Prompts as {"prompt": text}, of load_prompts' sources; of a .jsonl with all that its lines hold, as GenEval has
    them; of a folder of .txt files with the "name" of each file, as DPG-bench has them."""
    path = Path(source).expanduser() if isinstance(source, str) else None
    if path is not None and path.is_dir():
        files = sorted(path.glob("*.txt"))
        found = [{"prompt": " ".join(_read(file, Path(folder)).split()), "name": file.stem} for file in files]
    elif path is not None and path.suffix == ".jsonl":
        try:
            found = [json.loads(line) for line in _read(path, Path(folder)).splitlines() if line.strip()]
        except json.JSONDecodeError as error:
            raise LanternError(
                f"prompts={path} is no JSON ({error}); give an object with a prompt in each line"
            ) from error
        if not all(isinstance(one, dict) and isinstance(one.get("prompt"), str) for one in found):
            raise LanternError(f'prompts={path} has a line without a "prompt"; give one in each line')
    else:
        found = [{"prompt": prompt} for prompt in load_prompts(source, folder)]
    _without_blanks([one["prompt"] for one in found], str(source))
    return found


def split_prompts(prompts: Sequence[str], split: str) -> list[str]:
    """All prompts, those to tune on (dev) or those to report on (test); a hash of the text decides."""
    if split not in SPLITS:
        raise LanternError(f"split={split} is unknown; give one of {', '.join(SPLITS)}")
    if split == "all":
        return list(prompts)
    chosen = [prompt for prompt in prompts if _is_dev(prompt) == (split == "dev")]
    if not chosen:
        raise LanternError(f"split={split} leaves none of {len(prompts)} prompts; give more prompts, or split=all")
    return chosen


def _is_dev(prompt: str) -> bool:
    return sha256(prompt.lower().encode()).digest()[0] % DEV_SHARE == 0


def search_prompts(source: str | Sequence[str], split: str, folder: str | Path) -> list[str]:
    """Prompts for a search before prompts of `split` are timed, which are taken from the front: those of the other
    split, or, where there are none, the same from the end."""
    prompts = load_prompts(source, folder)
    timed = split_prompts(prompts, split)
    known = set(timed)
    return [prompt for prompt in prompts if prompt not in known] or timed[::-1]


def check_text(prompt: str) -> None:
    if not is_text(str(prompt)):
        raise LanternError(f"prompt {prompt!r} holds half of a character, a lone surrogate; delete it")


class Batch(NamedTuple):
    """The images to generate: for each its prompt, copy number and noise seed."""

    prompts: list[str]
    copies: list[int]
    seeds: list[int]

    @classmethod
    def cycle(cls, prompts: Sequence[str], count: int, seed: int) -> "Batch":
        """The first `count` prompts, cycling; the copy number counts a text's earlier occurrences."""
        cycled = [prompts[i % len(prompts)] for i in range(count)]
        seen: Counter[str] = Counter()
        copies = []
        for prompt in cycled:
            copies.append(seen[prompt])
            seen[prompt] += 1
        return cls(cycled, copies, [image_seed(seed, *image) for image in zip(cycled, copies, strict=True)])

    def part(self, which: slice) -> "Batch":
        return Batch(self.prompts[which], self.copies[which], self.seeds[which])

    @property
    def file_names(self) -> list[str]:
        """One file name per image, from its number and prompt. A copy, and a prompt that its letters do not identify,
        adds its seed: the points of a sweep may keep images of other prompts in one folder."""
        names = []
        for i, (prompt, copy, seed) in enumerate(zip(*self, strict=True)):
            slug = re.sub(r"[^\w]+", "-", prompt.lower()).strip("-")[:MAX_NAME]
            mark = "" if not copy and slug.replace("-", " ") == prompt else f"-{seed % 2**32:08x}"
            names.append(f"{i:05d}-{slug}{mark}.png")
        return names


def _read(path: Path, folder: Path) -> str:
    try:
        text = decode_text(path.read_bytes())
    except OSError as error:
        names = ", ".join(sorted(file.stem for file in folder.glob("*.txt"))) or "none"
        raise LanternError(
            f"prompts={path} cannot be read ({error.strerror}); give a text file with a prompt a line, a list such as "
            f"prompts='[\"a red sphere on wood\"]', or one of the named lists: {names}"
        ) from error
    if not is_text(text):
        raise LanternError(f"prompts={path} is not UTF-8 text; give a text file with a prompt a line")
    if "\0" in text:
        raise LanternError(f"prompts={path} is a binary file; give a text file with a prompt a line")
    return text


def _without_blanks(lines: Sequence[str], source: str) -> list[str]:
    prompts = [line.strip() for line in lines if line.strip()]
    if not prompts:
        raise LanternError(f"{source} holds no prompts; write at least one, a prompt a line")
    for number, prompt in enumerate(prompts, start=1):
        check_text(prompt)
        if found := CONTROL.search(prompt):
            raise LanternError(
                f"prompt {number} of {source} holds the control character {found[0]!r}, which a terminal would obey; "
                "delete it"
            )
    return prompts
