"""Settings of a command line in Hydra's grammar."""

import json
import re

PLAIN = re.compile(r"[a-zA-Z0-9_/.+%@|?:*-]+")  # what needs no quotes


def override(key: str, value: object) -> str:
    """key=value; a text, such as a path, is quoted where Hydra would read a part of it as grammar."""
    if isinstance(value, bool | int | float | list) or value is None:
        return f"{key}={json.dumps(value, ensure_ascii=False)}"
    text = str(value)
    return f"{key}={text if PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)}"


def max_time(seconds: int) -> str:
    """The setting of train.py that ends a training after these seconds."""
    minutes, seconds = divmod(seconds, 60)
    return f"trainer.max_time=00:{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"
