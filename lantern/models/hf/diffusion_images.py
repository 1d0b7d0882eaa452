"""GLM-Image's second stage, a diffusion transformer that makes pixels of codes, by diffusers if it is installed."""

import torch
from torch import Tensor, nn

from lantern.errors import LanternError, explaining
from lantern.models.hub import find_folder

SETTING, SIZE = "model.diffusion", 16_000_000_000  # bytes of its parts, about
STAGE_FOLDERS = "transformer", "vae", "text_encoder", "tokenizer", "scheduler"  # of the released folder
CODE_PIXELS = 32  # of a code's side


class DiffusionImages(nn.Module):
    """Turns the last h x w tokens of an image into pixels. The seed is fixed, so equal tokens give equal images. The
    prompt is not passed on, so this stage cannot write the prompt's quoted text into the picture."""

    def __init__(self, source: str, codebook: Tensor, grid: tuple[int, int], dtype: torch.dtype) -> None:
        """source: the released folder or its Hub id."""
        super().__init__()
        remedy = "install it, or leave this out to see codes as colours"
        with explaining(f"{SETTING}={source} needs diffusers", remedy, LanternError):
            from diffusers import GlmImagePipeline
        files = ["model_index.json", *(f"{part}/*" for part in STAGE_FOLDERS)]
        folder = find_folder(source, SETTING, SIZE, files, lambda found: (found / STAGE_FOLDERS[0]).is_dir())
        unread = {"vision_language_encoder": None, "processor": None}  # of the AR stage
        with explaining(f"{SETTING}={source} holds no pipeline of GLM-Image", "give its released folder or Hub id"):
            made = GlmImagePipeline.from_pretrained(folder, torch_dtype=dtype, local_files_only=True, **unread)
        made.set_progress_bar_config(disable=True)
        self.codebook, self.grid, self._pipeline = codebook, grid, made.to(codebook.device)
        self.parts = nn.ModuleList([made.transformer, made.vae, made.text_encoder])

    def decode(self, tokens: Tensor) -> Tensor:  # [B, L] -> [B, 3, H, W]
        height, width = self.grid
        grids = tokens[:, -height * width :].unflatten(1, self.grid)
        codes = grids.repeat_interleave(2, 1).repeat_interleave(2, 2).flatten(1)  # it reads them at twice the size
        size = {"height": CODE_PIXELS * height, "width": CODE_PIXELS * width, "output_type": "pt"}
        images = []
        for own in codes[:, None]:
            noise = torch.Generator(tokens.device).manual_seed(0)
            images.append(self._pipeline("", prior_token_ids=own, generator=noise, **size).images)
        return torch.cat(images).float()
