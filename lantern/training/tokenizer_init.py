"""Initialises a VQTokenizer as a linear code of block averages, so that training starts from recognisable images.
silu(x) - silu(-x) = x: features pass through the activations as pairs of opposite sign, and residual blocks start at
0."""

import torch
from torch import Tensor, nn

from lantern.models.llamagen.tokenizer import AttentionBlock, Downsample, ResBlock, Upsample, VQTokenizer

SHRINK = 0.3  # factor on the random weights outside the linear path
POLE = 1.5  # the constant code component: near it, directions serve as coordinates
BINOMIAL = torch.tensor([1.0, 2.0, 1.0]) / 4
RISE = torch.tensor([-1.0, 0.0, 1.0]) / 2
GAINS = (1.0, 1.0, 1.0, 6.0, 6.0)  # of the features in a code: red, green, blue and the two slopes of grey
NUM_FEATURES = len(GAINS)


@torch.no_grad()
def start_linear(tokenizer: VQTokenizer) -> None:
    """Writes the initial weights in place. Needs 10 channels at full resolution and 6 code dimensions."""
    for module in tokenizer.modules():
        if isinstance(module, ResBlock):
            nn.init.zeros_(module.conv2.weight)
            nn.init.zeros_(module.conv2.bias)
            if isinstance(module.nin_shortcut, nn.Conv2d):
                _carry(module.nin_shortcut)
        elif isinstance(module, AttentionBlock):
            nn.init.zeros_(module.proj_out.weight)
        elif isinstance(module, Downsample):
            _overwrite(module.conv, torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]) / 4)
        elif isinstance(module, Upsample):
            _overwrite(module.conv, torch.outer(BINOMIAL, BINOMIAL))
    _start_encoder(tokenizer)
    _start_decoder(tokenizer)


def _start_encoder(tokenizer: VQTokenizer) -> None:
    conv_in, conv_out = tokenizer.encoder.conv_in, tokenizer.encoder.conv_out
    filters = torch.zeros(NUM_FEATURES, 3, 3, 3)
    filters[:3, :, 1, 1] = torch.eye(3)
    filters[3], filters[4] = torch.outer(BINOMIAL, RISE) / 3, torch.outer(RISE, BINOMIAL) / 3
    _shrink(conv_in)
    conv_in.weight[: 2 * NUM_FEATURES] = torch.cat([filters, -filters])
    _shrink(conv_out)
    conv_out.weight[:NUM_FEATURES, :, 1, 1] = _signs(conv_out.in_channels).T
    _shrink(tokenizer.quant_conv)
    tokenizer.quant_conv.weight[0] = 0
    tokenizer.quant_conv.bias[0] = POLE
    tokenizer.quant_conv.weight[1 : NUM_FEATURES + 1] = 0
    tokenizer.quant_conv.weight[1 : NUM_FEATURES + 1, :NUM_FEATURES, 0, 0] = torch.diag(torch.tensor(GAINS)) / 2


def _start_decoder(tokenizer: VQTokenizer) -> None:
    after, conv_in, conv_out = tokenizer.post_quant_conv, tokenizer.decoder.conv_in, tokenizer.decoder.conv_out
    _shrink(after)
    after.weight[:NUM_FEATURES] = 0
    after.weight[:NUM_FEATURES, 1 : NUM_FEATURES + 1, 0, 0] = torch.diag(2 / torch.tensor(GAINS))
    _shrink(conv_in)
    conv_in.weight[: 2 * NUM_FEATURES] = 0
    conv_in.weight[: 2 * NUM_FEATURES, :NUM_FEATURES, 1, 1] = _signs(2 * NUM_FEATURES)
    _shrink(conv_out)
    conv_out.weight[:, :, 1, 1] = _signs(conv_out.in_channels)[:, :3].T / 2


def _signs(width: int) -> Tensor:
    """[width, NUM_FEATURES]: the sign with which each channel carries each feature."""
    eye = torch.eye(NUM_FEATURES)
    return torch.cat([eye, -eye, torch.zeros(width - 2 * NUM_FEATURES, NUM_FEATURES)])


def _carry(conv: nn.Conv2d) -> None:
    """Passes the feature channels on unchanged."""
    _shrink(conv)
    conv.weight[: 2 * NUM_FEATURES] = torch.eye(conv.out_channels, conv.in_channels)[: 2 * NUM_FEATURES, :, None, None]


def _overwrite(conv: nn.Conv2d, kernel: Tensor) -> None:
    """A depthwise filter: each channel by `kernel`."""
    conv.weight.copy_(torch.eye(conv.in_channels)[..., None, None] * kernel)
    nn.init.zeros_(conv.bias)


def _shrink(conv: nn.Conv2d) -> None:
    conv.weight.mul_(SHRINK)
    nn.init.zeros_(conv.bias)
