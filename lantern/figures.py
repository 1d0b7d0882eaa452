"""The figures of result rows: an entry for each number. Rows, tables, plots, pages and the glossary are made from it:
a new figure is an entry here and the code that measures it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """A number of result rows."""

    key: str
    title: str
    explanation: str
    kind: str  # "speed"; "law": of the output law; "images": of a metric, paired with plain decoding's
    better: str = ""  # "high", "low", or "" where neither is
    bounds: bool = False  # <key>_low and <key>_high stand beside it
    shown: bool = False  # on a page before "all columns" is asked for
    printed: int = 0  # its rank on a terminal that is too narrow for all, 1 the first; 0: not printed
    beside: str = ""  # the figure with which it is printed, or neither
    kept: bool = False  # in docs/rows
    fixed: bool = False  # a key of every row, None where it was not measured
    merged: str = ""  # over the points of a sweep that all measure plain decoding: "mean", "sum", or "" for the first
    plotted: bool = False  # against the speed-up
    bound_of: str = ""  # the figure of which it is a lower bound

    @property
    def keys(self) -> tuple[str, ...]:
        """Of a row: its own, and those of its bounds."""
        return (self.key, f"{self.key}_low", f"{self.key}_high") if self.bounds else (self.key,)


def _speed(key: str, title: str, explanation: str, better: str = "", **others) -> Figure:
    return Figure(key, title, explanation, "speed", better, fixed=True, **others)


FIGURES: dict[str, Figure] = {figure.key: figure for figure in (
    _speed("speedup", "speed-up",
           "Time of plain decoding over this setting's, both timed in turn on the same prompts, from prompt to tokens.",
           "high", bounds=True, shown=True, printed=1, kept=True),
    _speed("speedup_over_compiled", "over compiled",
           "Time of plain decoding with torch.compile over this setting's.", "high", bounds=True, printed=1,
           kept=True),
    _speed("tokens_per_step", "tokens per step",
           "Image tokens committed per forward pass of the target.", "high", shown=True, printed=3, kept=True),
    _speed("end_to_end_speedup", "end to end",
           "Speed-up with the image decoder included.", "high", bounds=True, shown=True),
    _speed("target_forwards", "target forwards",
           "Forward passes of the target per image, without the prompt's.", "low", printed=13, kept=True),
    _speed("drafter_forwards", "drafter forwards", "Forward passes of the drafter per image.", "low", printed=14),
    _speed("latency_s", "s per image",
           "Seconds from prompt to one image's tokens, text encoder included, one image at a time.",
           "low", printed=7, kept=True, merged="mean"),
    _speed("baseline_latency_s", "AR s per image",
           "Seconds per image of the plain decoding beside which this setting was timed.",
           printed=7, beside="latency_s", kept=True, merged="mean"),
    _speed("end_to_end_s", "s end to end", "Seconds from prompt to image.", "low", merged="mean"),
    _speed("round_ms", "round ms", "Milliseconds per round.", "low", printed=8, kept=True, merged="mean"),
    _speed("draft_ms", "draft ms",
           "Milliseconds per round spent on drafting. The parts of a round are the host's time, and so none on a GPU, "
           "which works while the host goes on.", "low", printed=15, kept=True, merged="mean"),
    _speed("drafter_forward_ms", "drafter ms",
           "Milliseconds per round spent in the drafter's forward passes; a part of drafting.", "low"),
    _speed("verify_ms", "verify ms", "Milliseconds per round spent in the target's forward pass.",
           "low", printed=16, kept=True, merged="mean"),
    _speed("accept_ms", "accept ms",
           "Milliseconds per round spent on choosing the accepted tokens and committing them.",
           "low", printed=17, kept=True, merged="mean"),
    Figure("head_ms", "head ms", "Milliseconds per round in the diffusion head of verification; a part of accepting.",
           "speed", "low", kept=True),
    _speed("overhead", "overhead",
           "Share of a round that is neither a target nor a drafter forward pass; none on a GPU.", "low", kept=True),
    _speed("target_nodes", "target nodes", "Tree nodes per image that the target judged.", "low"),
    _speed("num_timed", "timed", "Number of images timed one at a time.", kept=True, merged="sum"),
    _speed("retimed", "timed again",
           "Number of images timed more than once, since other processes used the cores or the run was stopped between "
           "two sides.", kept=True, merged="sum"),
    _speed("other_cores", "other cores", "Cores that other processes used while images were timed.",
           kept=True, merged="mean"),
    _speed("gpu_sharers", "GPU sharers",
           "Other processes on the same GPU while images were timed; none where NVML is mute.", kept=True),
    Figure("output_tv", "output TV",
           "Total variation between the target's law and the law of a committed token. Under shared noise an upper "
           "bound: the share of tokens that are not the target's own pick.",
           "law", "low", bounds=True, shown=True, printed=2, kept=True, fixed=True, plotted=True),
    Figure("output_tv_floor", "TV floor",
           "Output TV of the exact rule by the same estimate, which would be 0 with infinitely many redraws; none "
           "where picks are compared.", "law", printed=2, beside="output_tv", kept=True),
    Figure("output_tv_positions", "TV positions", "Number of positions of which output TV is the mean.",
           "law", printed=18, kept=True),
    Figure("output_tv_redraws", "TV redraws", "Redraws of a node's children; none where the law has a closed form.",
           "law", kept=True),
    Figure("least_output_tv", "TV at least",
           "Lower bound of output TV, from the first token of each round: how far the share of codes with a low draft "
           "probability falls below the target's. 0 on average where nothing is lost.",
           "law", "low", bounds=True, printed=4, kept=True, bound_of="output_tv"),
    Figure("least_output_tv_positions", "TV at least, positions", "Number of rounds of which that bound is the mean.",
           "law", kept=True),
    Figure("code_distance", "code distance",
           "Expected distance in the codebook between a token of the target's law and the committed token; 1 is the "
           "mean distance of a code and its nearest neighbour.",
           "law", "low", bounds=True, printed=10, kept=True),
    Figure("output_distance", "output distance",
           "Energy distance between the target's law of a latent and the law of the committed one, over the mean "
           "distance of two latents; unbiased, so it can be below 0.", "law", "low", bounds=True, kept=True),
    Figure("output_told_apart", "told apart",
           "Share of positions at which a two-sample test at level 5 % tells the two laws apart.",
           "law", "low", kept=True),
    Figure("output_told_apart_floor", "told apart, floor", "The same share for two samples of the target.",
           "law", kept=True),
    Figure("frechet", "Fréchet", "Fréchet distance to real images in feature space; biased upwards for few images.",
           "images", "low", bounds=True, shown=True, printed=5, plotted=True),
    Figure("frechet_diff", "Fréchet less AR's",
           "The Fréchet distance less that of plain decoding on the same prompts and seeds.",
           "images", "low", bounds=True, printed=6, kept=True),
    Figure("kernel", "kernel", "Kernel distance to real images in feature space; unbiased, so it can be below 0.",
           "images", "low", bounds=True, shown=True, printed=11),
    Figure("kernel_diff", "kernel less AR's",
           "The kernel distance less that of plain decoding on the same prompts and seeds.",
           "images", "low", bounds=True, kept=True),
    Figure("precision", "precision", "Share of images that lie among the real images.",
           "images", "high", bounds=True, shown=True, printed=12),
    Figure("recall", "recall", "Share of real images that lie among the images of this setting.",
           "images", "high", bounds=True, shown=True, printed=12),
    Figure("all_accuracy", "prompts right", "Share of images that show all that the prompt asks for.",
           "images", "high", bounds=True, shown=True, printed=12),
    Figure("all_accuracy_loss", "prompts right, loss", "That share of plain decoding's images less this setting's.",
           "images", "low", bounds=True, kept=True),
    Figure("equal_images", "equal images", "Share of images that are those of plain decoding, pixel by pixel.",
           "images", "high", bounds=True),
    Figure("image_diff", "image diff", "Mean difference from plain decoding's pixels, which lie between 0 and 1.",
           "images", "low", bounds=True),
    Figure("diversity", "diversity", "Mean distance of two images of one prompt in feature space.",
           "images", "high", bounds=True),
    Figure("num_images", "images", "Number of images judged.", "images", fixed=True),
)}  # fmt: skip
METRIC_ENDS = {  # of the keys of a metric's figures: words behind the name, an explanation, and which way is better
    "_accuracy": (" right", "Share of images that show what the prompt asks for.", "high"),
    "_score": (" score", "Mean score of the images under this metric.", "high"),
    "_diff": (" less AR's", "Difference from plain decoding on the same prompts and seeds.", "low"),
    "_loss": (", loss", "Plain decoding's figure less this setting's, on the same prompts and seeds.", "low"),
    "_floor": (", floor", "The exact rule's figure by the same estimate.", ""),
    "_share": (" share", "", "high"),
    "_tv": (" TV", "", "low"),
    "_distance": (" distance", "", "low"),
}
JUDGED_ENDS = ("_accuracy", "_score")  # of the figures of a metric that have a column at first


def figure_of(key: str) -> Figure:
    """The entry of a row's key; of a metric that has none, one made from the key's end."""
    if key in FIGURES:
        return FIGURES[key]
    is_judged = key.endswith(JUDGED_ENDS)
    for end, (words, explanation, better) in METRIC_ENDS.items():
        if name := key.removesuffix(end) if key.endswith(end) else "":
            title = f"{figure_of(name).title}{words}"
            return Figure(key, title, explanation or f"{key} in results.csv.", "images", better, shown=is_judged,
                          printed=12 if is_judged else 0)  # fmt: skip
    return Figure(key, key.replace("_", " "), f"{key} in results.csv.", "images")


def figures(**wanted: object) -> list[Figure]:
    """Those with these values, such as kept=True, in their order."""
    return [one for one in FIGURES.values() if all(getattr(one, name) == value for name, value in wanted.items())]
