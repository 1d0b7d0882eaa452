"""Prompts to the token ids before an image's first token, for the conditional and the unconditional row."""

import logging
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

from transformers import PreTrainedTokenizerBase

from lantern.errors import CheckpointError, FirstWarning, LanternError

PLACE = "\ue000"  # of a prompt in its template: a character that no template has
MAX_TOKENS_PER_WORD = 8  # an upper bound for nearly all words: cutting approaches the limit from above

log = logging.getLogger(__name__)


class Prefix(NamedTuple):
    """Token ids before an image's first token, by guidance row."""

    conditional: list[int]
    unconditional: list[int]


class PromptIds:
    """before + the text's tokens + after; a prompt that is too long for `length` tokens loses words at its end."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase | None, length: int, before: Sequence[int], after: Sequence[int],
        unconditional: Callable[[list[int]], list[int]], template: str = "{}",
    ) -> None:  # fmt: skip
        """unconditional: of the conditional ids; tokenizer: None only on the meta device."""
        self.tokenizer, self.length, self.template = tokenizer, length, template
        self.before, self.after, self.unconditional = list(before), list(after), unconditional
        self._warn = FirstWarning(log)
        if (least := len(unconditional([*self.before, *self.after]))) > length:
            raise LanternError(
                f"model.prefix_len={length}: the prefix without a prompt takes {least} tokens; give model.prefix_len="
                f"{least} at least, or a shorter model.negative where there is one"
            )

    def __call__(self, prompts: Sequence[str]) -> list[Prefix]:
        return [self._prefix(prompt) for prompt in prompts]

    def _prefix(self, prompt: str) -> Prefix:
        tokens_left = self.length - len(self.before) - len(self.after)
        text, ids = prompt, self._ids(prompt)
        while len(ids) > tokens_left:
            if not text:
                raise LanternError(f"{self.length} tokens have no room for any prompt; give a larger model.prefix_len")
            count = max(1, (len(ids) - tokens_left) // MAX_TOKENS_PER_WORD)
            text = " ".join(text.split(" ")[:-count]) or text[:-count]  # Chinese has no spaces: letters are cut
            ids = self._ids(text)
        if text != prompt:
            told = "prompts are cut behind %d tokens: %r was cut to %r"
            self._warn(told, tokens_left, prompt, text)
        conditional = [*self.before, *ids, *self.after]
        return Prefix(conditional, self.unconditional(conditional))

    @cached_property
    def _special(self) -> list[str]:
        """The special tokens' texts, longest first."""
        added = getattr(self.tokenizer, "added_tokens_decoder", {}).values()  # a user's own may have none
        return sorted((str(token) for token in added if token.special), key=len, reverse=True)

    def _ids(self, prompt: str) -> list[int]:
        """Special tokens of the template are tokens; those that a user typed are text."""
        if not any(token in prompt for token in self._special):
            return text_ids(self.tokenizer, self.template.format(prompt))
        template = self.template.format(PLACE)
        names = [re.escape(token) for token in self._special if token in template]
        ids: list[int] = []
        for index, part in enumerate(re.split(f"({'|'.join(names) or '(?!)'})", template)):
            if index % 2:
                ids.append(self.tokenizer.convert_tokens_to_ids(part))
            elif text := part.replace(PLACE, prompt):
                ids += self.tokenizer(text, add_special_tokens=False, split_special_tokens=True).input_ids
        return ids


def fixed(ids: Sequence[int]) -> Callable[[list[int]], list[int]]:
    return lambda conditional: list(ids)


def chat_template(tokenizer: PreTrainedTokenizerBase) -> str:
    """A template of str.format for one prompt, by the tokenizer's own chat template where it has one."""
    if not getattr(tokenizer, "chat_template", None):
        return "{}"
    messages = [{"role": "user", "content": [{"type": "text", "text": PLACE}]}]
    whole = tokenizer.apply_chat_template(messages, tokenize=False)
    return whole.replace("{", "{{").replace("}", "}}").replace(PLACE, "{}", 1)


def text_ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False).input_ids


def id_of(tokenizer: PreTrainedTokenizerBase | None, name: str) -> int:
    """The id of a special token; 0 where there is no tokenizer."""
    if tokenizer is None:
        return 0
    found = tokenizer.get_vocab().get(name)
    if found is None:
        raise CheckpointError(f"the text tokenizer has no token {name!r}; give the tokenizer of this model")
    return found
