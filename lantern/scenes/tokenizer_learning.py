"""Parts of the tokenizer's training: the initial weights, the codebook by k-means, the texture loss (wrong amounts of
texture at any frequency, direction or place within a token, whatever the phase), and a patch discriminator (Isola et
al. 2017, arXiv:1611.07004; weighted as by Esser et al. 2021, arXiv:2012.09841)."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Generator, Tensor, nn

from lantern.models.llamagen.tokenizer import AttentionBlock, Downsample, ResBlock, Upsample, VQTokenizer
from lantern.scenes.reconstruction import TOKEN, detail_by_place

LOCAL_WINDOW = 16  # pixels: a texture beside an object has windows of its own
NEIGHBOURS = 3  # windows, down and across, whose powers are averaged
BATCH_WINDOW = 32  # pixels: the lines of a pattern of 8 pixels are apart
BATCH_WEIGHT = 4  # of the batch's spectrum, beside the others
STRIDE = TOKEN  # of the discriminator
NOISE = (4 / 255) ** 2  # about the power of the scenes' sensor noise, of images in [0, 1]
ROUNDING = 1 / 255**2 / 12  # that of bytes
SHRINK = 0.3  # factor on the random weights outside the linear path
POLE = 1.5  # the constant code component: near it, directions serve as coordinates
BINOMIAL = torch.tensor([1.0, 2.0, 1.0]) / 4
RISE = torch.tensor([-1.0, 0.0, 1.0]) / 2
GAINS = (1.0, 1.0, 1.0, 6.0, 6.0)  # of the features in a code: red, green, blue and the two slopes of grey
NUM_FEATURES = len(GAINS)
LLOYD_STEPS = 8  # of k-means


def texture_loss(made: Tensor, real: Tensor) -> Tensor:
    """Mean absolute differences of log powers, so that faint and strong textures count alike, of images [B, 3, H, W] in
    [0, 1]: of the spectra around each place, of the batch's spectrum, and of the detail at each place within a token.

    The power around a place varies, and a decoder that cannot know it settles below the mean: the batch's spectrum asks
    for the mean. The detail within a token keeps the decoder from putting all power into dots of the tokens' grid.
    """
    local = _log_difference(_local_spectra(made), _local_spectra(real), NOISE)
    batch = _log_difference(_batch_spectrum(made), _batch_spectrum(real), ROUNDING)
    even = detail_by_place(real).mean((-2, -1), keepdim=True)
    return local + BATCH_WEIGHT * batch + _log_difference(detail_by_place(made), even, NOISE)


def _log_difference(made: Tensor, real: Tensor, floor: float) -> Tensor:
    return ((made + floor) / (real + floor)).log().abs().mean()


def _local_spectra(images: Tensor) -> Tensor:
    powers = rearrange(_window_spectra(images, LOCAL_WINDOW), "b c h w y x -> b (c y x) h w")
    count = min(NEIGHBOURS, powers.shape[-1])
    return F.avg_pool2d(powers, count, (count + 1) // 2)


def _batch_spectrum(images: Tensor) -> Tensor:
    return _window_spectra(images, min(BATCH_WINDOW, *images.shape[2:])).mean((0, 2, 3))


def _window_spectra(images: Tensor, side: int) -> Tensor:
    """Powers [B, 3, h, w, side, side / 2 + 1] by frequency in half-overlapping Hann windows of images [B, 3, H, W],
    without their means; white noise has its variance at every frequency."""
    taper = torch.hann_window(side, device=images.device)
    window = torch.outer(taper, taper)
    patches = images.float().unfold(2, side, side // 2).unfold(3, side, side // 2)
    centred = patches - patches.mean((-2, -1), keepdim=True)
    return torch.fft.rfft2(centred * (window / window.square().mean().sqrt()), norm="ortho").abs().square()


class PatchDiscriminator(nn.Module):
    """Scores patches of 22 pixels, STRIDE apart, above 0 if real: [B, 3, H, W] -> [B, 1, h, w]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        widths = [3, width, 2 * width, 4 * width]
        self.stages = nn.ModuleList(nn.Conv2d(a, b, 4, stride=2, padding=1) for a, b in pairwise(widths))
        self.score = nn.Conv2d(widths[-1], 1, 1)

    def forward(self, images: Tensor) -> Tensor:
        hidden = images * 2 - 1
        for stage in self.stages:
            hidden = F.leaky_relu(stage(hidden), 0.2)
        return self.score(hidden).float()


def crop_from(images: Tensor, offset: Tensor) -> Tensor:
    """Images [B, 3, H, W] without their first `offset` (two below STRIDE) rows and columns, STRIDE smaller. Otherwise
    patches would begin where tokens do, and the discriminator would know reconstructions by the tokens' grid."""
    (top, left), (height, width) = offset.tolist(), (side - STRIDE for side in images.shape[2:])
    return images[:, :, top : top + height, left : left + width]


def balance_gradient(loss: Tensor, reference: Tensor, images: Tensor) -> Tensor:
    """`loss`, scaled so that its gradient at the images has the norm of that of `reference`."""
    ours, theirs = (torch.autograd.grad(part, images, retain_graph=True)[0].norm() for part in (loss, reference))
    return loss * (theirs / (ours + 1e-8)).clamp(max=1e4)


class ClusteredCodebook(nn.Module):
    """The statistics behind a unit-norm codebook [V, C], written into `weight` in place: k-means on encoder outputs,
    then moving averages of the vectors assigned to each code (van den Oord et al. 2017, arXiv:1711.00937, A.1)."""

    def __init__(self, size: int, dim: int, decay: float = 0.99, revive_below: float = 0.1, pool: int = 32768) -> None:
        """A code with less than `revive_below` of the mean usage is reset. pool: encoder outputs for k-means."""
        super().__init__()
        self.decay, self.revive_below = decay, revive_below
        self.register_buffer("usage", torch.ones(size))
        self.register_buffer("sums", torch.zeros(size, dim))
        self.register_buffer("pool", torch.zeros(pool, dim))
        self.register_buffer("pooled", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def collect(self, z: Tensor) -> None:
        """Stores encoder outputs [n, C]; the latest `pool` are kept."""
        slots = (self.pooled + torch.arange(len(z), device=z.device)) % len(self.pool)
        self.pool[slots] = z
        self.pooled += len(z)

    @torch.no_grad()
    def start(self, weight: Tensor, generator: Generator) -> None:
        """Writes the centres of spherical k-means on the pool into `weight` [V, C]."""
        known = self.pool[: int(self.pooled.clamp(max=len(self.pool)))]
        size = len(weight)
        pick = torch.randperm(len(known), generator=generator).repeat(-(-size // len(known)))[:size].to(known.device)
        codes = known[pick]
        with torch.autocast(known.device.type, enabled=False):  # as Quantizer.nearest
            for _ in range(LLOYD_STEPS):
                sums, counts = _sum_by_code(known, (known @ codes.T).argmax(-1), size)
                codes = torch.where(counts[:, None] > 0, F.normalize(sums, dim=-1), known[pick])
        weight.copy_(codes)
        self.usage.fill_(1)
        self.sums.copy_(codes)

    @torch.no_grad()
    def update(self, weight: Tensor, z: Tensor, tokens: Tensor, generator: Generator, revive: bool) -> Tensor:
        """One step of moving averages for z [n, C] and its tokens [n]; usage is relative to its mean. Returns the mask
        [V] of codes that were reset to data."""
        size = len(weight)
        sums, counts = _sum_by_code(z, tokens, size)
        self.usage.lerp_(counts * size / len(z), 1 - self.decay)
        self.sums.lerp_(sums * size / len(z), 1 - self.decay)
        dead = (self.usage < self.revive_below) & revive
        fresh = z[torch.randint(len(z), (size,), generator=generator).to(z.device)]
        self.sums.copy_(torch.where(dead[:, None], fresh, self.sums))
        self.usage.masked_fill_(dead, 1)
        weight.copy_(F.normalize(self.sums, dim=-1))
        return dead


def _sum_by_code(z: Tensor, tokens: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Sum [V, C] and number [V] of the vectors z [n, C] assigned to each code."""
    sums = torch.zeros(size, z.shape[1], device=z.device).index_add_(0, tokens, z)
    return sums, torch.bincount(tokens, minlength=size).float()


@torch.no_grad()
def start_linear(tokenizer: VQTokenizer) -> None:
    """Makes a tokenizer a linear code of block averages, in place, so that training starts from recognisable images.
    silu(x) - silu(-x) = x: features pass the activations as pairs of opposite sign, residual blocks start at 0. Needs
    10 channels at full resolution and 6 code dimensions."""
    for module in tokenizer.modules():
        if isinstance(module, ResBlock):
            nn.init.zeros_(module.conv2.weight)
            nn.init.zeros_(module.conv2.bias)
            if isinstance(module.nin_shortcut, nn.Conv2d):
                _pass_features(module.nin_shortcut)
        elif isinstance(module, AttentionBlock):
            nn.init.zeros_(module.proj_out.weight)
        elif isinstance(module, Downsample):
            _set_depthwise(module.conv, torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]) / 4)
        elif isinstance(module, Upsample):
            _set_depthwise(module.conv, torch.outer(BINOMIAL, BINOMIAL))
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
    conv_out.weight[:NUM_FEATURES, :, 1, 1] = _feature_signs(conv_out.in_channels).T
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
    conv_in.weight[: 2 * NUM_FEATURES, :NUM_FEATURES, 1, 1] = _feature_signs(2 * NUM_FEATURES)
    _shrink(conv_out)
    conv_out.weight[:, :, 1, 1] = _feature_signs(conv_out.in_channels)[:, :3].T / 2


def _feature_signs(width: int) -> Tensor:
    """[width, NUM_FEATURES]: the sign with which each channel carries each feature."""
    eye = torch.eye(NUM_FEATURES)
    return torch.cat([eye, -eye, torch.zeros(width - 2 * NUM_FEATURES, NUM_FEATURES)])


def _pass_features(conv: nn.Conv2d) -> None:
    """Passes the feature channels on unchanged."""
    _shrink(conv)
    conv.weight[: 2 * NUM_FEATURES] = torch.eye(conv.out_channels, conv.in_channels)[: 2 * NUM_FEATURES, :, None, None]


def _set_depthwise(conv: nn.Conv2d, kernel: Tensor) -> None:
    """A depthwise filter: each channel by `kernel`."""
    conv.weight.copy_(torch.eye(conv.in_channels)[..., None, None] * kernel)
    nn.init.zeros_(conv.bias)


def _shrink(conv: nn.Conv2d) -> None:
    conv.weight.mul_(SHRINK)
    nn.init.zeros_(conv.bias)
