"""The embedded scenes: `render(seed) -> (uint8 [128, 128, 3], Scene)`, a pure function of the seed.
Seeds are split by range: SPLITS["train"], "validation" and "test" show the training triples, "novel" the held-out ones.
A scene is one of four solids, seen from the front and shaded, on one of eight textures."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.random import PCG64, Generator

from lantern.scenes.captions import BARE_SCENES, HELD_OUT_SCENES, NONE, SEEN_SCENES, Scene, parse_caption
from lantern.scenes.textures import COLUMNS, PAINTERS, ROWS, SIZE, Field

SPLITS = {name: range(i * 10**9, (i + 1) * 10**9) for i, name in enumerate(("train", "validation", "test", "novel"))}
SHARE_BARE = 0.15
PAINTS = {  # far enough apart to stay distinct after vector quantisation
    "red": (214, 26, 30), "yellow": (250, 214, 20), "green": (24, 160, 50), "blue": (26, 62, 214),
    "purple": (146, 40, 190), "white": (244, 244, 244), "black": (34, 34, 38),
}  # fmt: skip
SENSOR_NOISE = 1.5 / 255


class Surface(NamedTuple):
    """The visible side of a solid, per pixel (x right, y down, z towards the viewer)."""

    coverage: Field  # share of the pixel, in [0, 1]
    normal: tuple[Field, Field, Field]


def split_of(seed: int) -> str:
    """The split a seed belongs to; ValueError outside all."""
    for name, seeds in SPLITS.items():
        if seed in seeds:
            return name
    raise ValueError(f"scene seed {seed} is in no split; seeds run from 0 to {SPLITS['novel'].stop - 1}")


def describe(seed: int) -> Scene:
    """What the scene of a seed shows, without rendering it."""
    return _draw_scene(split_of(seed), _generator(seed, 0))


def render(seed: int) -> tuple[np.ndarray, Scene]:
    """The image, uint8 [128, 128, 3], and the scene of a seed."""
    scene = describe(seed)
    return _paint(scene, _generator(seed, 1)), scene


def render_caption(caption: str, seed: int) -> np.ndarray:
    """A scene of a given caption, uint8 [128, 128, 3]; LanternError for a caption that describes no scene."""
    return _paint(parse_caption(caption), _generator(seed, 1))


def _generator(seed: int, purpose: int) -> Generator:
    return Generator(PCG64([seed, purpose]))


def _draw_scene(split: str, rng: Generator) -> Scene:
    scenes = HELD_OUT_SCENES if split == "novel" else SEEN_SCENES
    if split != "novel" and rng.uniform() < SHARE_BARE:
        scenes = BARE_SCENES
    return scenes[rng.integers(len(scenes))]


def _paint(scene: Scene, rng: Generator) -> np.ndarray:
    image = PAINTERS[scene.texture](rng)
    angle = np.deg2rad(rng.uniform(-160, -110))  # of the light: from above, left
    to_light = (np.cos(angle), np.sin(angle))
    if scene.shape != NONE:
        image = _add_object(image, scene, to_light, rng)
    across = ((COLUMNS - SIZE / 2) * to_light[0] + (ROWS - SIZE / 2) * to_light[1]) / (SIZE / 2)
    image = image * (rng.uniform(0.94, 1.04) + rng.uniform(0.04, 0.12) * across)[..., None]
    image += SENSOR_NOISE * rng.standard_normal(image.shape, dtype=np.float32)
    return (np.clip(image, 0, 1) * 255 + 0.5).astype(np.uint8)


def _add_object(image: np.ndarray, scene: Scene, to_light: tuple[float, float], rng: Generator) -> np.ndarray:
    """The background with the object and its shadow."""
    radius = rng.uniform(0.27, 0.35) * SIZE
    x, y = ((grid - SIZE / 2 - rng.uniform(-9, 9)) / radius for grid in (COLUMNS, ROWS))
    surface = SOLIDS[scene.shape](x, y, radius, rng)
    image = image * (1 - 0.6 * _shadow(surface.coverage, to_light, radius))[..., None]
    paint = np.array(PAINTS[scene.colour], np.float32) / 255 + rng.uniform(-0.03, 0.03, 3).astype(np.float32)
    return image + surface.coverage[..., None] * (_shade(surface, paint, to_light) - image)


def _shade(surface: Surface, paint: np.ndarray, to_light: tuple[float, float]) -> np.ndarray:
    """Lambert's law with an ambient share, and a Blinn-Phong highlight."""
    light = np.array([*to_light, 1.1]) / np.hypot(1, 1.1)
    towards_both = light + np.array([0, 0, 1])  # the eye is at z = infinity
    halfway = towards_both / np.linalg.norm(towards_both)
    lit, mirror = (sum(np.float32(c) * n for c, n in zip(v, surface.normal, strict=True)) for v in (light, halfway))
    lit, mirror = (np.maximum(field, 0)[..., None] for field in (lit, mirror))
    return paint * (0.42 + 0.65 * lit) + 0.45 * mirror**40


def _shadow(coverage: np.ndarray, to_light: tuple[float, float], radius: float) -> np.ndarray:
    """The coverage blurred by a Gaussian of a sixth of the radius and moved away from the light, in one transform."""
    y, x = np.fft.fftfreq(SIZE)[:, None], np.fft.rfftfreq(SIZE)[None]
    blur = np.exp(-2 * (np.pi * radius / 6) ** 2 * (x * x + y * y))
    shift = np.exp(2j * np.pi * 0.28 * radius * (to_light[0] * x + to_light[1] * y))
    return np.clip(np.fft.irfft2(np.fft.rfft2(coverage) * (blur * shift).astype(np.complex64)), 0, 1)


def sphere(x: Field, y: Field, radius: float, rng: Generator) -> Surface:
    """x, y in units of the radius; the radius in pixels sets the width of the soft edge."""
    square = x * x + y * y
    return Surface(_edge((1 - np.sqrt(square)) * radius), (x, y, np.sqrt(np.maximum(1 - square, 0))))


def ring(x: Field, y: Field, radius: float, rng: Generator) -> Surface:
    """A slightly tilted torus: major radius 0.70, minor radius 0.28."""
    y = y / rng.uniform(0.8, 1.0)
    distance = np.maximum(np.hypot(x, y), 1e-3)
    across = (distance - 0.70) / 0.28
    normal = (across * x / distance, across * y / distance, np.sqrt(np.maximum(1 - across * across, 0)))
    return Surface(_edge((1 - np.abs(across)) * 0.28 * radius), normal)


def cone(x: Field, y: Field, radius: float, rng: Generator) -> Surface:
    """Apex up, seen slightly from above: the base is an ellipse."""
    height, base, rim = 1.0, 0.78, 0.22
    width = base * (y + height) / (2 * height - rim)
    side = np.clip(x / np.maximum(width, 1e-3), -1, 1)
    bottom = height - rim + rim * np.sqrt(1 - np.minimum((x / base) ** 2, 1))
    inside = np.minimum((width - np.abs(x)) * 0.92, bottom - y)
    return Surface(_edge(inside * radius), (0.92 * side, np.full_like(x, -0.39), 0.92 * np.sqrt(1 - side * side)))


def cube(x: Field, y: Field, radius: float, rng: Generator) -> Surface:
    """Seen from above, an edge in front: ray-slab intersection (Kay and Kajiya, 1986)."""
    half, axes = 0.66, _cube_axes(rng.uniform(0.5, 1.07), -rng.uniform(0.5, 0.65))
    front, back, normal = np.full_like(x, 9), np.full_like(x, -9), [np.zeros_like(x) for _ in range(3)]
    for axis in axes:  # z of the slab's two faces where the ray through (x, y) meets them
        middle, reach = -(axis[0] * x + axis[1] * y) / axis[2], half / axis[2]
        visible = middle + reach < front
        normal = [np.where(visible, component, n) for component, n in zip(axis, normal, strict=True)]
        front, back = np.minimum(front, middle + reach), np.maximum(back, middle - reach)
    return Surface(_edge((front - back) * radius * 0.4), tuple(normal))


def _cube_axes(yaw: float, pitch: float) -> np.ndarray:
    """[3, 3] the cube's face normals, each facing the viewer."""
    turn = np.array([[np.cos(yaw), 0, -np.sin(yaw)], [0, 1, 0], [np.sin(yaw), 0, np.cos(yaw)]])
    tilt = np.array([[1, 0, 0], [0, np.cos(pitch), -np.sin(pitch)], [0, np.sin(pitch), np.cos(pitch)]])
    axes = (tilt @ turn).T
    return (axes * np.sign(axes[:, 2:])).astype(np.float32)


def _edge(pixels_inside: Field) -> Field:
    return np.clip(pixels_inside + 0.5, 0, 1)


Solid = Callable[[Field, Field, float, Generator], Surface]
SOLIDS: dict[str, Solid] = {solid.__name__: solid for solid in (sphere, cube, cone, ring)}
