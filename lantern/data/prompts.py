"""Prompts from a named or literal list, a file, a table or a data set of the Hub; each image's copy number and seed."""

import logging
import os
import re
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from lantern.data.text_tables import LINE_END, column_of, decode_text, is_text, natural, printable, read_records
from lantern.errors import LanternError, meant
from lantern.noise import image_seed
from lantern.runtime.files import is_file

DEV_SHARE = 4  # one prompt in so many is for tuning
SPLITS = ("all", "dev", "test")
MAX_NAME = 56  # letters of a prompt in a file name
KEYS = ("prompt", "caption", "text")  # of a row, in this order
TABLE = re.compile(r"(?i)(.+\.(?:jsonl|json|csv|tsv|parquet))(?::([^:/]+))?")  # with a column
HUB_PROMPTS = re.compile(r"([\w.-]+/[\w.-]+):([\w.-]+)(?::([^:/]+))?")  # a data set, a split, a column
BENCHMARKS = {  # of others, read where they are; licences as stated there
    "coco": "phiyodr/coco2017:validation:captions",  # 5,000, the first caption of each image of val2017; CC BY 4.0
    "parti": "nateraw/parti-prompts:train:Prompt",  # 1,632; Apache 2.0
    "drawbench": "sayakpaul/drawbench:train:Prompts",  # 200; Apache 2.0
    "geneval": "https://raw.githubusercontent.com/djghosh13/geneval/d927da8e42fde2b1b5cd743da4df5ff83c1654ff/prompts/"
    "evaluation_metadata.jsonl",  # 553; MIT
    "dpg": "https://raw.githubusercontent.com/TencentQQGYLab/ELLA/main/dpg_bench/dpg_bench.csv",  # 1,065; Apache 2.0
}

log = logging.getLogger(__name__)


def load_prompts(source: str | Sequence[str], folder: str | Path) -> list[str]:
    """The texts of prompt_records, blank ones left out."""
    return [record["prompt"] for record in prompt_records(source, folder) if record["prompt"]]


class Captions(NamedTuple):
    """A split (data/splits.py) without images."""

    captions: list[str]


class PromptSplits:
    """Prompts as a data set whose images the target draws. Each tenth is for validation; of fewer all are in both."""

    def __init__(self, prompts: str | Sequence[str], folder: str) -> None:
        """As load_prompts."""
        self.prompts = load_prompts(prompts, folder)

    def split(self, name: str) -> Captions:
        held_out = self.prompts[9::10]
        if name == "validation":
            return Captions(held_out or self.prompts)
        return Captions([prompt for index, prompt in enumerate(self.prompts) if index % 10 != 9])


def prompt_records(source: str | Sequence[str], folder: str | Path) -> list[dict]:
    """Prompts as {"prompt": text}. source: a literal list; the name of a list in `folder` or of BENCHMARKS; a file with
    a prompt a line; a table (.jsonl, .json, .csv, .tsv, .parquet) or a split of a data set of the Hub, user/name:split,
    each with :column behind it where that is not one of KEYS; a folder of .txt files. Of a table of text all columns
    are kept, as GenEval's layout needs them, of a folder the "name" of each file, as DPG-bench's does."""
    if isinstance(source, Sequence) and not isinstance(source, str):
        if any(not str(prompt).strip() for prompt in source):
            raise LanternError("prompts=[…] has a prompt without words; give it some, or leave it out")
        return _filled([{"prompt": str(prompt).strip()} for prompt in source], "the prompt list")
    if not str(source).strip():  # which Path takes for the working folder
        raise LanternError("prompts= names no prompts; give a list, a file or a name")
    place = BENCHMARKS.get(source, str(source))
    if is_file(named := Path(folder) / f"{source}.txt"):
        place = str(named)
    path = Path(os.path.expanduser(place))
    if table := TABLE.fullmatch(str(path) if "://" not in place else place):
        records = _of_table(table[1], table[2])
    elif os.path.isdir(path):
        files = sorted(path.glob("*.txt"), key=lambda file: natural(file.name))  # as images are
        records = [{"prompt": " ".join(_read(file, Path(folder)).split()), "name": file.stem} for file in files]
    elif not os.path.exists(path) and (found := HUB_PROMPTS.fullmatch(place)):
        records = _of_hub(*found.groups())
    else:
        records = [{"prompt": line.strip()} for line in LINE_END.split(_read(path, Path(folder))) if line.strip()]
    return _filled(records, place)


def _of_table(place: str, column: str | None) -> list[dict]:
    """The rows of a table with a prompt that is not blank; of several with one item_id, as in DPG-bench, the first."""
    if "://" not in place and not is_file(Path(place)):
        _read(Path(place), Path(place).parent)  # raises
    records: dict[str, dict] = {}
    repeats = 0
    for record in read_records(place if "://" in place else Path(place)):
        item = "" if (found := record.values.get("item_id")) is None else str(found).strip()
        if (item or record.name) in records:
            repeats += 1
            continue
        key = column or next((key for key in KEYS if key in record.values), KEYS[0])
        prompt = _text(record.values.get(key))
        if record.problem and "://" in place and record.name == place:
            told = f"prompts: {place} has to be fetched and is {record.problem}"
            raise LanternError(f"{told}; fetch it elsewhere and give prompts=<its path>")
        if record.problem or not prompt:
            problem = record.problem or f"no {key!r} among {', '.join(record.values)}"
            raise LanternError(f"prompts: {record.name}: {problem}; give each row one, or its column: {place}:column")
        plain = {} if place.lower().endswith(".parquet") else record.values
        records[item or record.name] = plain | ({"name": item} if plain and item else {}) | {"prompt": prompt}
    if repeats:
        log.info("%s: %d rows repeat an item_id and are left out, %d are kept", place, repeats, len(records))
    return list(records.values())


def _of_hub(name: str, split: str, column: str | None) -> list[dict]:
    from lantern.data.dataset_stream import Stream  # imports pyarrow

    stream, place = Stream(name, split), f"{name}:{split}"
    column = column_of(stream.columns, [column] if column else KEYS, f"prompts={place}:column", place)
    return [{"prompt": _text(cells[column].as_py())} for cells in stream.read([column])]


def _text(value: object) -> str:
    """A prompt, or the first of an image's several captions."""
    value = value[0] if isinstance(value, list) and value else value
    return value.strip() if isinstance(value, str) else ""


def split_prompts(prompts: Sequence[str], split: str) -> list[str]:
    """All prompts, those to tune on (dev) or those to report on (test); a hash of the text decides."""
    if split not in SPLITS:
        raise LanternError(f"split={split} is unknown; give one of {', '.join(SPLITS)}")
    if split == "all":
        return list(prompts)
    kinds = (sha256(prompt.lower().encode()).digest()[0] % DEV_SHARE == 0 for prompt in prompts)
    chosen = [prompt for prompt, is_dev in zip(prompts, kinds, strict=True) if is_dev == (split == "dev")]
    if not chosen:
        raise LanternError(f"split={split} leaves no prompt of {len(prompts)}; give more prompts, or split=all")
    return chosen


def search_prompts(source: str | Sequence[str], split: str, folder: str | Path) -> list[str]:
    """Prompts for a search before the first prompts of `split` are timed: those of the other split, or if it has none,
    the prompts of `split` in reverse order."""
    prompts = load_prompts(source, folder)
    timed = split_prompts(prompts, split)
    known = set(timed)
    return [prompt for prompt in prompts if prompt not in known] or timed[::-1]


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
        """One file name per image, from its number and prompt. The seed is added for a copy, and for a prompt
        that these letters do not identify: a sweep's points may keep images of other prompts in one folder."""
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
        names = [*sorted(file.stem for file in folder.glob("*.txt")), *BENCHMARKS]
        raise LanternError(
            f"prompts={path} cannot be read ({error.strerror}); {meant(path.name, names)}give a text file with a "
            "prompt a line, a list such as prompts='[\"a red sphere on wood\"]', or one of the named lists: "
            + ", ".join(names)
        ) from error
    return text


def _filled(records: list[dict], source: str) -> list[dict]:
    texts = [record["prompt"] for record in records]
    if found := next((text for text in texts if not is_text(text) or "\0" in text), None):
        raise LanternError(f"prompts: {source} is not UTF-8 text, see {printable(found[:80])!r}; save it as UTF-8")
    if not any(record["prompt"] for record in records):
        raise LanternError(f"{source} holds no prompts; write at least one, a prompt a line")
    return records
