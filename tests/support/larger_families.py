"""The families of support.families, as large as their times are measured."""

from support import families

SIZES = {  # of a tiny body, and what it becomes
    ("hidden_size", 32): 768, ("intermediate_size", 48): 2048, ("num_hidden_layers", 2): 12,
    ("num_attention_heads", 4): 12, ("num_key_value_heads", 2): 12, ("projection_dim", 32): 768,
    ("image_token_embed_dim", 32): 768,
    ("image_size", 8): 16, ("num_image_tokens", 16): 64,
}  # fmt: skip


def grown(config: dict, within: str = "") -> dict:
    made = {}
    for key, value in config.items():
        is_of_vision = within == "vision_config" and key not in ("projection_dim", "image_size", "num_image_tokens")
        made[key] = grown(value, key) if isinstance(value, dict) else value
        if not isinstance(value, dict | list) and not is_of_vision:
            made[key] = SIZES.get((key, value), value)
        if key == "mrope_section":
            made[key] = [4, 6, 6]
    return made


def write_larger(side: int) -> None:
    """Makes the tiny sizes of all families those of 12 layers of width 768, and their images side x side codes."""
    SIZES.update({("image_size", 8): 2 * side, ("num_image_tokens", 16): side * side})
    for geometry in (families.JANUS, families.EMU3, families.CHAMELEON, families.GLM_IMAGE, families.SIMPLEAR):
        sizes = grown(geometry)
        geometry.clear()
        geometry.update(sizes)
    families.SIDE = side
