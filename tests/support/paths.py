"""Where things lie in the repository."""

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
CONF, PROMPTS, WEIGHTS = ROOT / "conf", ROOT / "data" / "prompts", ROOT / "data" / "weights"
GOLDEN, SUPPORT = TESTS / "golden", TESTS / "support"
