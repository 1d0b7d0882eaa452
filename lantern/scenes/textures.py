"""Eight procedural textures with natural 1/f statistics (Field, 1987): filtered noise and warped stripes."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.random import Generator

SIZE = 128
ROWS, COLUMNS = np.mgrid[:SIZE, :SIZE].astype(np.float32)  # y downwards, x to the right, in pixels
Field = np.ndarray  # [128, 128] float32
Image = np.ndarray  # [128, 128, 3] float32 in [0, 1]


@lru_cache(maxsize=64)
def _amplitude(slope: float, elongation: float, angle: float) -> np.ndarray:
    """[128, 65] f^-slope; the grain is `elongation` times longer along `angle` (radians from the x axis)."""
    y, x = np.fft.fftfreq(SIZE)[:, None], np.fft.rfftfreq(SIZE)[None]
    along, across = np.cos(angle) * x + np.sin(angle) * y, np.cos(angle) * y - np.sin(angle) * x
    radius = np.sqrt(elongation * along**2 + across**2 / elongation)
    radius[0, 0] = 1.0
    amplitude = np.maximum(radius, 1.0 / SIZE) ** -slope
    amplitude[0, 0] = 0.0
    power = (amplitude[:, :1] ** 2).sum() + 2 * (amplitude[:, 1:-1] ** 2).sum() + (amplitude[:, -1:] ** 2).sum()
    return (amplitude * SIZE / np.sqrt(2 * power)).astype(np.float32)


def fractal(rng: Generator, slope: float = 1.0, elongation: float = 1.0, angle: float = 0.0) -> Field:
    """Gaussian noise of about unit variance whose amplitude falls as f^-slope."""
    parts = rng.standard_normal((2, SIZE, SIZE // 2 + 1), dtype=np.float32)
    spectrum = (parts[0] + 1j * parts[1]) * _amplitude(slope, elongation, angle)
    return np.fft.irfft2(spectrum, norm="ortho")


def smoothstep(low: float, high: float, field: Field) -> Field:
    """Cubic step: 0 at or below `low`, 1 at or above `high`."""
    ramp = np.clip((field - low) / (high - low), 0, 1)
    return ramp * ramp * (3 - 2 * ramp)


def blend(field: Field, dark: tuple[int, ...], light: tuple[int, ...]) -> Image:
    """Linear interpolation of two 8-bit colours: `dark` at field 0, `light` at field 1."""
    first, second = (np.array(colour, np.float32) / 255 for colour in (dark, light))
    return first + np.clip(field, 0, 1)[..., None] * (second - first)


def clouds(rng: Generator) -> Image:
    """White cover over blue sky, slope 1.6."""
    cover = smoothstep(-1.1, 1.5, fractal(rng, 1.6, 1.7) + rng.uniform(-0.2, 0.2))
    return blend(cover, (86, 140, 205), (245, 247, 250))


def wood(rng: Generator) -> Image:
    """Growth rings: a warped sawtooth of the height, with fine grain."""
    along = rng.uniform(-0.12, 0.12)
    height = ROWS + along * COLUMNS + 7 * fractal(rng, 2.2, 6.0)
    rings = (height / rng.uniform(15, 22) + rng.uniform()) % 1.0
    rings = np.minimum(rings / 0.85, (1 - rings) / 0.15)  # wide early wood, then a thin dark line
    grain = fractal(rng, 1.0, 10.0)
    return blend(0.28 + 0.48 * rings + 0.12 * grain, (84, 46, 20), (196, 140, 84))


def marble(rng: Generator) -> Image:
    """Dark veins along the zeros of a warped sine."""
    direction = rng.uniform(0, np.pi)
    straight = (np.cos(direction) * COLUMNS + np.sin(direction) * ROWS) / rng.uniform(50, 70)
    warped = np.abs(np.sin(np.pi * (straight + rng.uniform()) + 1.6 * fractal(rng, 1.9)))
    veins = np.exp(-6 * warped)
    return blend(0.88 - 0.75 * veins + 0.07 * fractal(rng, 1.2), (78, 82, 92), (242, 238, 230))


def grass(rng: Generator) -> Image:
    """Two directions of elongated noise, the brighter one in front."""
    left, right = (fractal(rng, 1.1, 6.0, angle) for angle in (np.pi / 2 - 0.3, np.pi / 2 + 0.3))
    blades = np.maximum(left, right) - 0.5
    return blend(0.38 + 0.2 * blades + 0.1 * fractal(rng, 1.6), (16, 52, 12), (150, 196, 66))


def sand(rng: Generator) -> Image:
    """Warped sine ripples."""
    phase = (ROWS + rng.uniform(-0.5, 0.5) * COLUMNS) / rng.uniform(16, 22) + rng.uniform()
    ripples = np.sin(2 * np.pi * phase + 1.3 * fractal(rng, 1.9))
    return blend(0.55 + 0.17 * ripples + 0.13 * fractal(rng, 1.1), (150, 112, 64), (236, 208, 150))


def water(rng: Generator) -> Image:
    """Glints along the zeros of elongated noise."""
    waves = np.abs(fractal(rng, 1.9, 2.5))
    glints = np.exp(-4 * waves)
    depth = 0.22 + 0.1 * fractal(rng, 1.6, 2.0)
    return blend(depth + 0.6 * glints, (4, 50, 92), (150, 226, 232))


def stone(rng: Generator) -> Image:
    """Voronoi cells of different shades, with mortar between them."""
    nearest, second, owner = _cells(rng, rng.uniform(26, 32))
    mortar = smoothstep(0.02, 0.22, second - nearest)
    shade = rng.uniform(0.4, 0.85, 256).astype(np.float32)[owner]
    rough = 0.1 * fractal(rng, 1.1)
    return blend((shade + rough - 0.25 * nearest) * (0.25 + 0.75 * mortar), (30, 29, 30), (190, 186, 180))


def _cells(rng: Generator, pitch: float) -> tuple[Field, Field, np.ndarray]:
    """Distances in pitches to the nearest and second nearest jittered grid point (Worley, 1996); the first's index."""
    warp = 0.1 * fractal(rng, 1.8)
    y, x = ROWS / np.float32(pitch) + warp + 1, COLUMNS / np.float32(pitch) - warp + 1
    row, column = np.floor(y).astype(np.int32), np.floor(x).astype(np.int32)
    down, right = rng.uniform(0.15, 0.85, (2, 256)).astype(np.float32)
    nearest, second, owner = np.full_like(y, 9), np.full_like(y, 9), np.zeros_like(row)
    for i in (row - 1, row, row + 1):
        for j in (column - 1, column, column + 1):
            number = (i & 15) * 16 + (j & 15)
            distance = (i - y + down.take(number)) ** 2 + (j - x + right.take(number)) ** 2
            owner = np.where(distance < nearest, number, owner)
            second = np.minimum(second, np.maximum(nearest, distance))
            nearest = np.minimum(nearest, distance)
    return np.sqrt(nearest), np.sqrt(second), owner


def fabric(rng: Generator) -> Image:
    """A folded plaid of two crossing stripe patterns."""
    fold = 2.0 * fractal(rng, 2.0)
    pitch = rng.uniform(26, 34)
    warp, weft = (np.abs((line / pitch + rng.uniform()) % 1.0 - 0.5) for line in (COLUMNS + fold, ROWS + fold))
    plaid = smoothstep(0.18, 0.26, warp) + smoothstep(0.18, 0.26, weft)
    thread = np.sin(np.pi / 2 * (COLUMNS + ROWS + fold))
    tone = 0.2 + 0.32 * plaid + 0.05 * thread + 0.07 * fractal(rng, 1.0)
    return blend(tone, (98, 40, 62), (226, 190, 178))


PAINTERS: dict[str, Callable[[Generator], Image]] = {
    painter.__name__: painter for painter in (clouds, wood, marble, grass, sand, water, stone, fabric)
}
