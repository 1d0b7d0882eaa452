"""Conditioners without a text encoder: word features of captions with a closed vocabulary, and class labels."""

import logging
from collections.abc import Iterable, Sequence
from string import punctuation

import torch
from torch import Tensor

from lantern.errors import FirstWarning, LanternError, meant
from lantern.types import AnyText

SCENE_WORDS = (  # of the embedded scenes' captions: the default vocabulary
    "a", "on", "clouds", "wood", "marble", "grass", "sand", "water", "stone", "fabric", "sphere", "cube", "cone",
    "ring", "red", "yellow", "green", "blue", "purple", "white", "black",
)  # fmt: skip
WORDS_SHOWN = 24  # of many
log = logging.getLogger(__name__)


def words_of(captions: Iterable[str]) -> set[str]:
    """Without the punctuation around them."""
    return {word.strip(punctuation) for caption in captions for word in caption.lower().split()} - {""}


def _shown(words: Sequence[str]) -> str:
    return " ".join(map(repr, words[:WORDS_SHOWN])) + (f" … ({len(words)} in all)" if len(words) > WORDS_SHOWN else "")


class WordFeatures(AnyText):
    """One fixed unit-variance Gaussian vector per word, in place of T5 features; captions are padded on the left."""

    reads_any_text = False

    def __init__(self, vocabulary: Sequence[str], dim: int, length: int, seed: int = 0) -> None:
        """dim: C; length: P, the most words of a caption that are read."""
        self.words = {word: index for index, word in enumerate(vocabulary)}
        self.dim, self.length = dim, length
        self._warn = FirstWarning(log)
        self.table = torch.randn(len(self.words), dim, generator=torch.Generator().manual_seed(seed))

    def __call__(self, prompts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """-> features [B, P, C], visible [B, P]. Long captions are cut."""
        features = torch.zeros(len(prompts), self.length, self.dim)
        visible = torch.zeros(len(prompts), self.length, dtype=torch.bool)
        for row, prompt in enumerate(prompts):
            indices = self._indices(prompt)
            features[row, -len(indices) :] = self.table[indices]
            visible[row, -len(indices) :] = True
        return features, visible

    def check(self, captions: Iterable[str]) -> None:
        words = {self._known_form(word) for caption in captions for word in caption.lower().split()}
        if unknown := sorted(words - {"", *self.words}):
            raise LanternError(
                f"the captions of data= have {len(unknown)} words that this model does not know: {_shown(unknown)}; "
                "give other images, or train a target on these (task=target)"
            )

    def _indices(self, prompt: str) -> list[int]:
        words = [form for word in prompt.lower().split() if (form := self._known_form(word))]
        if unknown := next((word for word in words if word not in self.words), None):
            known = f"this model knows {_shown(list(self.words))}; give prompts and captions of these words"
            where = f"unknown word {unknown!r} in {prompt!r}; {meant(unknown, self.words)}"
            raise LanternError(f"{where}{known}, or train a target (task=target)")
        if not words:
            raise LanternError(f"prompt {prompt!r} has no words; this model reads 1 to {self.length}")
        if len(words) > self.length:
            told = "prompts are cut behind %d words: %r has %d"
            self._warn(told, self.length, prompt, len(words))
        return [self.words[word] for word in words[: self.length]]

    def _known_form(self, word: str) -> str:
        """The word without surrounding punctuation, unless the vocabulary has the word with it."""
        return word if word in self.words else word.strip(punctuation)


class ClassLabels(AnyText):
    """Class numbers as prompts, for class-conditional models."""

    reads_any_text = False
    evaluate_with = ("prompts=classes", "quality.num_images=0")  # the defaults are scene captions and their metrics

    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes

    def __call__(self, prompts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """-> labels [B], visible [B, 1]."""
        self.check(prompts)
        labels = torch.tensor([int(prompt) for prompt in prompts])
        return labels, torch.ones(len(labels), 1, dtype=torch.bool)

    def check(self, captions: Iterable[str]) -> None:
        for prompt in captions:
            if not prompt.strip().isdecimal() or int(prompt) >= self.num_classes:
                raise LanternError(f"prompt {prompt!r} is no class of this model; give 0 to {self.num_classes - 1}")
