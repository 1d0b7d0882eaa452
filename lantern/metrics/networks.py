"""Networks that score images, from local files or the Hub, each with its own image processor: vision networks such as
DINOv2 (2304.07193); CLIP (2103.00020) and its descendant PickScore (2305.01569), which score images by prompts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL.Image import Resampling
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity
from torch.utils.weak import WeakIdKeyDictionary
from transformers import AutoConfig, AutoImageProcessor, AutoModel, AutoTokenizer, CLIPModel, CLIPVisionModel
from transformers import CLIPImageProcessorPil as ClipProcessor
from transformers import PreTrainedTokenizerBase as Tokenizer

from lantern.data.image_sets import Images, as_bytes, batches
from lantern.errors import LanternError, explaining
from lantern.identity import state_hash
from lantern.metrics.intervals import mean_interval
from lantern.metrics.metric import Metric
from lantern.models.checkpoints import shortened
from lantern.models.hub import find_folder
from lantern.runtime.hardware import resolve_device

BATCH_SIZE = 32
TOKENIZER_FILES = "*.json", "*.txt"
PROCESSOR_FILE = "preprocessor_config.json"


class Pixels:
    """Preprocessing by a network's image processor of `transformers`, on the CPU, as its authors evaluate it."""

    def __init__(self, processor: Any) -> None:
        self.processor, self.resize = processor, resize_rule(processor.to_dict())

    def __call__(self, images: Tensor) -> Tensor:  # [B, 3, H, W] in [0, 1] -> [B, 3, height, width]
        pixels = list(as_bytes(images).permute(0, 2, 3, 1).cpu().numpy())
        return self.processor(pixels, return_tensors="pt", input_data_format="channels_last").pixel_values


def resize_rule(settings: dict[str, Any]) -> str:
    """What an image processor does to an image's size: "shortest edge 256 bicubic, centre crop 224 x 224"."""
    size, crop = settings.get("size") or {}, settings.get("crop_size") or {}
    sides = f"{size['width']} x {size['height']}" if "height" in size else f"shortest edge {size.get('shortest_edge')}"
    steps = [f"{sides} {Resampling(settings['resample']).name.lower()}"] if settings.get("do_resize") else []
    steps += [f"centre crop {crop['width']} x {crop['height']}"] if settings.get("do_center_crop") else []
    return ", ".join(steps) or "none"


class VisionFeatures(nn.Module):
    """The pooled output of a vision network as features."""

    def __init__(self, body: nn.Module, pixels: Pixels) -> None:
        super().__init__()
        self.body, self.pixels, self.resize = body, pixels, pixels.resize

    def features(self, images: Tensor) -> Tensor:
        """[B, 3, H, W] in [0, 1] -> [B, F]"""
        return self.body(self.pixels(images).to(self.body.device)).pooler_output


class Clip(nn.Module):
    """Scores images by the cosine of their embedding and their prompt's, times `scale`."""

    def __init__(self, body: CLIPModel, tokenizer: Tokenizer, pixels: Pixels, scale: float) -> None:
        super().__init__()
        self.body, self.tokenizer, self.pixels, self.scale = body, tokenizer, pixels, scale
        self.resize = pixels.resize

    @torch.inference_mode()
    def scores(self, images: Tensor, prompts: Sequence[str]) -> Tensor:  # [B, 3, H, W] in [0, 1], B prompts -> [B]
        limits = {"truncation": True, "max_length": self.max_tokens}
        texts = self.tokenizer(list(prompts), padding=True, return_tensors="pt", **limits)
        texts = texts.to(self.body.device)
        words = self.body.get_text_features(texts.input_ids, texts.attention_mask).pooler_output
        shown = self.body.get_image_features(self.pixels(images).to(self.body.device)).pooler_output
        return self.scale * cosine_similarity(shown, words)

    @property
    def max_tokens(self) -> int:
        """Of a prompt, its first and last token included; of a longer one only the beginning is scored."""
        return self.body.config.text_config.max_position_embeddings


class ImageTextScore(Metric):
    """Mean score of an image and its prompt, and its loss against AR's images; bounds by a bootstrap over images."""

    def __init__(self, name: str, network: Clip) -> None:
        """name: of the row's keys, <name>_score and <name>_score_loss."""
        self.name, self.network = f"{name}_score", network
        self._known = WeakIdKeyDictionary()  # of the images that are there: AR's are scored alone, and as a reference
        self._hash = state_hash(network)

    def prepare(self, prompts: Sequence[str]) -> None:
        if not all(prompts):
            raise LanternError(f"{self.name} compares images with prompts; give prompts=…, or leave it out")

    def __call__(self, images: Images, prompts: Sequence[str]) -> dict[str, float]:
        return mean_interval(self._scores(images, prompts)).keys(self.name)

    def against(self, images: Images, plain: Images, prompts: Sequence[str]) -> dict[str, float]:
        """AR's score less the method's, a prompt's two images resampled together."""
        lost = self._scores(plain, prompts) - self._scores(images, prompts)
        return mean_interval(lost).keys(f"{self.name}_loss")

    def protocol(self, prompts: Sequence[str]) -> dict[str, object]:
        return {f"{self.name}_network": self._hash, f"{self.name}_resize": self.network.resize}

    def warnings(self, prompts: Sequence[str]) -> list[str]:
        texts = list(dict.fromkeys(prompts))
        limit = self.network.max_tokens
        if not (cut := sum(len(ids) > limit for ids in self.network.tokenizer(texts).input_ids)):
            return []
        return [f"{self.name} reads {limit} tokens of a prompt; longer and so cut: {cut} of {len(texts)}"]

    def _scores(self, images: Images, prompts: Sequence[str]) -> np.ndarray:  # [N]
        if images not in self._known:
            texts = (prompts[start : start + BATCH_SIZE] for start in range(0, len(prompts), BATCH_SIZE))
            parts = [self.network.scores(*both) for both in zip(batches(images, BATCH_SIZE), texts, strict=True)]
            self._known[images] = torch.cat(parts).double().cpu().numpy()
        return self._known[images]


def load_vision(folder: str | Path, device: str = "cpu") -> VisionFeatures:
    """A vision network of `transformers` from a local folder or the Hub."""
    folder = find_folder(folder, "metrics.<name>.extractor.folder")
    remedy = "download one of `transformers`, such as facebook/dinov2-base, and give its folder"
    with explaining(f"{folder} holds no vision network", remedy):
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        body = _read_pretrained(CLIPVisionModel if config.model_type.startswith("clip") else AutoModel, folder)
        return _frozen(VisionFeatures(body, Pixels(_processor(folder))), device)


def load_clip(folder: str | Path, tokenizer: str | Path | None = None, scale: float = 1.0, device: str = "cpu") -> Clip:
    """A CLIP of `transformers` from a local folder or the Hub. tokenizer: another one, for weights that have none."""
    folder = find_folder(folder, "metrics.<name>.network.folder")
    remedy = "download one of `transformers`, such as openai/clip-vit-base-patch32, and give its folder"
    with explaining(f"{folder} holds no CLIP with both its image and its text side", remedy):
        body = _read_pretrained(CLIPModel, folder)
        side = body.config.vision_config.image_size
        usual = ClipProcessor(size={"shortest_edge": side}, crop_size={"height": side, "width": side})
        pixels = Pixels(_processor(folder) if (Path(folder) / PROCESSOR_FILE).is_file() else usual)
    words = load_tokenizer(tokenizer or folder, body.config.text_config.vocab_size)
    return _frozen(Clip(body, words, pixels, scale), device)


def _processor(folder: str | Path) -> Any:
    return AutoImageProcessor.from_pretrained(folder, backend="pil", local_files_only=True)


def load_tokenizer(source: str | Path, vocab_size: int) -> Tokenizer:
    folder = find_folder(source, "network.tokenizer", TOKENIZER_FILES, lambda found: any(found.glob("*.json")))
    remedy = "give the folder of its tokenizer.json, or of vocab.json and merges.txt"
    with explaining(f"the CLIP needs a tokenizer of {vocab_size} tokens and {folder} holds none", remedy):
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        if len(tokenizer) != vocab_size:
            raise ValueError(f"one of {len(tokenizer)} tokens")
    return tokenizer


def _read_pretrained(kind: Any, folder: str | Path) -> nn.Module:
    """In float32. ValueError for missing weights, which transformers would leave at random."""
    body, report = kind.from_pretrained(folder, local_files_only=True, dtype=torch.float32, output_loading_info=True)
    if report["missing_keys"]:
        raise ValueError(f"its weights lack {shortened(sorted(report['missing_keys']))}")
    return body


def _frozen(network: nn.Module, device: str) -> Any:
    return network.eval().requires_grad_(False).to(resolve_device(device))
