"""The methods that the page offers, as the parts that lantern.load(…).stream takes."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Method:
    """A method by its label in the page."""

    label: str
    note: str
    parts: Mapping[str, object] = field(default_factory=dict)


RELAXED = ["acceptance.lam=5"]
METHODS = {
    "plain": Method("Plain decoding", "one token a step, the reference", {"drafter": "none"}),
    "refined_jacobi": Method(
        "Refined Jacobi window", "18 guesses that EAGLE's layer refines", {"method": "refined_jacobi"}
    ),
    "jacobi": Method("Plain Jacobi window", "15 guesses of the target's own, no drafter", {"method": "jacobi"}),
    "static_shared": Method("EAGLE static tree", "a fixed tree of EAGLE's drafts", {"method": "static_shared"}),
    "eagle2_shared": Method("EAGLE-2 dynamic tree", "EAGLE's most probable drafts", {"method": "eagle2_shared"}),
    "refined_lantern_pp": Method(
        "LANTERN++ on the refined window",
        "15 refined guesses, LANTERN++ with λ = 5 accepts similar tokens",
        {"method": "refined_lantern_pp", "settings": RELAXED},
    ),
    "lantern_pp": Method(
        "LANTERN++ on EAGLE's tree",
        "LANTERN++ with λ = 5 on its 57-node tree, by ratio verification",
        {"method": "lantern_pp", "settings": RELAXED},
    ),
}
EXAMPLES = ("a red sphere on wood", "a blue ring on sand", "a green cone on marble")
CLASSES = ("207", "360", "387", "974")
