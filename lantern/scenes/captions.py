"""Captions of the embedded scenes: their vocabulary, their attributes, and the triples held out of all training."""

from itertools import product
from string import punctuation
from typing import NamedTuple

from lantern.errors import LanternError, meant

TEXTURES = ("clouds", "wood", "marble", "grass", "sand", "water", "stone", "fabric")
SHAPES = ("sphere", "cube", "cone", "ring", "none")
COLOURS = ("red", "yellow", "green", "blue", "purple", "white", "black")
NONE = "none"  # the shape and colour of a scene without an object
VOCABULARY = ("a", "on", *TEXTURES, *SHAPES[:-1], *COLOURS)


class Scene(NamedTuple):
    texture: str
    shape: str
    colour: str

    @property
    def caption(self) -> str:
        """ "a red sphere on wood"; only the texture where there is no object."""
        return self.texture if self.shape == NONE else f"a {self.colour} {self.shape} on {self.texture}"


def is_held_out(scene: Scene) -> bool:
    """Whether this triple is held out: one in ten, each pair of attributes at most once, never a bare texture."""
    if scene.shape == NONE:
        return False
    texture, shape, colour = TEXTURES.index(scene.texture), SHAPES.index(scene.shape), COLOURS.index(scene.colour)
    return (texture + 2 * shape + 3 * colour + 9) % 10 == 0


BARE_SCENES = tuple(Scene(texture, NONE, NONE) for texture in TEXTURES)
_OBJECTS = [Scene(*triple) for triple in product(TEXTURES, SHAPES[:-1], COLOURS)]
SEEN_SCENES = tuple(scene for scene in _OBJECTS if not is_held_out(scene))  # with an object, as in training
HELD_OUT_SCENES = tuple(filter(is_held_out, _OBJECTS))
_BY_CAPTION = {scene.caption: scene for scene in (*BARE_SCENES, *_OBJECTS)}


def parse_caption(caption: str) -> Scene:
    """The scene that a caption describes, punctuation aside; LanternError for an unknown word or another sentence."""
    words = [word for given in caption.lower().split() if (word := given.strip(punctuation))]
    for word in words:
        if word not in VOCABULARY:
            known = f"{meant(word, VOCABULARY)}the embedded scenes know {' '.join(map(repr, VOCABULARY))}"
            raise LanternError(f"unknown word {word!r} in {caption!r}; {known}")
    if (scene := _BY_CAPTION.get(" ".join(words))) is None:
        raise LanternError(f"{caption!r} is no scene; write 'a red sphere on wood', or 'wood' for a bare texture")
    return scene
