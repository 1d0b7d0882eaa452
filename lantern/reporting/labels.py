"""Words for result rows: labels that name what differs, marks, and what all rows share."""

from collections.abc import Sequence

from lantern.evaluation.rows import Row, config_keys, is_baseline

LABEL_KEYS = (
    "model", "drafter", "drafter_hash", "tree", "verification", "acceptance", "k", "delta", "lam", "temperature",
    "top_k", "top_p", "cfg_scale", "seed", "target_hash", "prompts_hash", "split", "num_images", "batch_size", "dtype",
    "device", "threads", "torch", "compile", "tf32",
)  # fmt: skip
SYMBOLS = {"delta": "δ", "lam": "λ", "eps": "ε", "alpha": "α", "beta": "β", "mu": "μ", "nu": "ν"}


def label_rows(rows: Sequence[Row]) -> list[str]:
    """A short name a row: "AR" for a baseline, else its method if there are several, and the settings in which rows of
    its method differ; else its rule, tree and bound. Equal names are numbered."""
    groups: dict[object, list[Row]] = {}
    for row in rows:
        groups.setdefault(_method(row), []).append(row)
    named = ["method"] if len(groups.keys() - {"AR"}) > 1 else []
    keys = {method: [*([] if method == "AR" else named), *_differing(alike)] for method, alike in groups.items()}
    labels = [_label(row, keys[_method(row)]) for row in rows]
    counts = [labels[:index].count(label) for index, label in enumerate(labels)]
    return [f"{label} #{count + 1}" if count else label for label, count in zip(labels, counts, strict=True)]


def _method(row: Row) -> object:
    return "AR" if is_baseline(row) else row.get("method")


def _differing(rows: Sequence[Row]) -> list[str]:
    return [key for key in (*LABEL_KEYS, *config_keys(rows)) if len({str(row.get(key)) for row in rows}) > 1]


def _label(row: Row, keys: Sequence[str]) -> str:
    parts = [_setting(row, key) for key in keys if row.get(key) is not None]
    if is_baseline(row):
        return " ".join(["AR", *parts])
    return " ".join(parts) or " ".join([f"{row['acceptance']} {row['tree']}", *_bounds(row)])


def _setting(row: Row, key: str) -> str:
    if key == "drafter_hash":
        return str(row.get("drafter_name") or row[key])
    return row[key] if isinstance(row[key], str) else f"{_symbol(key)} {row[key]:g}"


def _bounds(row: Row) -> list[str]:
    """A rule's δ or λ, which a row without a name of its own shows though no other row differs in it."""
    return [f"{SYMBOLS[key]} {row[key]:g}" for key in ("delta", "lam") if row.get(key) is not None]


def _symbol(key: str) -> str:
    name = key.split(".")[-1]
    return SYMBOLS.get(name, name)


def marks(row: Row) -> dict[str, str]:
    """A setting in a word each: whether its law is plain decoding's, whether its drafter was trained, and a lossy
    setting's verdict under the sweep's budget."""
    law = "lossless" if row.get("lossless") or is_baseline(row) else "lossy"
    drafter = "trained" if row.get("drafter_hash") else "training-free"
    verdict = row.get("within_budget") if law == "lossy" else "yes"
    return {"law": law, "drafter": drafter, "budget": verdict or "-"}


def shared_settings(rows: Sequence[Row]) -> str:
    """A sentence with the settings that all methods share, hashes left out, and the number of judged images."""
    methods = [row for row in rows if not is_baseline(row)] or rows
    shared = [
        key
        for key in (*LABEL_KEYS, *config_keys(methods))
        if not key.endswith("_hash")
        and len({str(row.get(key)) for row in methods}) == 1
        and methods[0].get(key) is not None
    ]
    settings = ", ".join(f"{key} {methods[0][key]}" for key in shared)
    judged = methods[0].get("num_images")
    quality = f"Quality of {judged} images per setting; brackets" if judged else "Brackets"
    return f"All methods: {settings}. {quality}: 95 % bounds."
