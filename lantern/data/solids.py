"""Four solids seen from the front, in local coordinates: coverage and surface normals per pixel."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

Field = np.ndarray  # [H, W] float32


class Surface(NamedTuple):
    """The visible side of a solid, per pixel (x right, y down, z towards the viewer)."""

    coverage: Field  # share of the pixel, in [0, 1]
    normal: tuple[Field, Field, Field]


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


SOLIDS: dict[str, Callable[[Field, Field, float, Generator], Surface]] = {
    solid.__name__: solid for solid in (sphere, cube, cone, ring)
}
