"""Sets of images, however many, of which a few at a time are in memory: from a folder, an .npz, or a data set of the
Hub; and the layouts in which other tools read them."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from math import ceil
from pathlib import Path
from typing import IO, Protocol
from zipfile import ZipFile, is_zipfile

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from lantern.data.image_io import READ, images_below, load_image
from lantern.data.text_tables import natural
from lantern.errors import LanternError, explaining, writing
from lantern.runtime.files import replace_file

READERS = 4  # threads that decode image files
BATCH_SIZE = 64  # images in memory at once
ARRAY, STATISTICS = "arr_0", ("mu", "sigma")  # parts of an .npz: of images, as numpy names the first; of features
HUB_SOURCE = re.compile(r"([\w.-]+/[\w.-]+):(\w+)(?:\[:(\d+)\])?")  # of a data set, with its split and a number


class Images(Protocol):
    """What metrics judge: a tensor [N, 3, H, W] in [0, 1] on the CPU, or whatever gives one for a slice."""

    def __len__(self) -> int: ...
    def __getitem__(self, which: slice, /) -> Tensor: ...


class FolderImages:
    """The image files of a folder and the folders in it, by name; 2.png comes before 10.png."""

    def __init__(self, folder: Path, size: int | None = None) -> None:
        found = images_below(str(folder))
        self.files, self.size = sorted(found, key=lambda file: natural(str(file.relative_to(folder)))), size
        self._shapes: set[tuple[int, ...]] = set()  # of all images that were read
        if not self.files:
            raise LanternError(f"{folder} holds no images; give a folder with {', '.join(READ[:3])} or other images")

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, which: slice) -> Tensor:
        with ThreadPoolExecutor(READERS) as pool:
            pixels = pool.map(lambda file: _pixels(file.read_bytes, self.size, str(file)), self.files[which])
            return _as_tensor(pixels, self._shapes)


class ArrayImages:
    """uint8 [N, H, W, 3] in an .npz, such as ADM's, read from the file slice by slice."""

    def __init__(self, path: Path, size: int | None = None) -> None:
        self._path = path
        with _readable(path):
            self._file: IO[bytes] = ZipFile(path).open(f"{ARRAY}.npy")  # noqa: SIM115 (read as long as this lives)
            is_old = np.lib.format.read_magic(self._file) == (1, 0)
            read_header = np.lib.format.read_array_header_1_0 if is_old else np.lib.format.read_array_header_2_0
            self.shape, is_transposed, dtype = read_header(self._file)
        if dtype != np.uint8 or len(self.shape) != 4 or self.shape[3] != 3 or is_transposed or not self.shape[0]:
            raise LanternError(f"{path} has {ARRAY} of {dtype} {[*self.shape]}; give images as uint8 [N, H, W, 3]")
        if size and self.shape[1:3] != (size, size):
            raise LanternError(f"size={size}: {path} has images of {self.shape[2]} x {self.shape[1]}; leave size out")
        self._start = self._file.tell()

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, which: slice) -> Tensor:
        start, stop, _ = which.indices(len(self))
        size = int(np.prod(self.shape[1:]))
        with _readable(self._path):
            self._file.seek(self._start + start * size)
            content = self._file.read((stop - start) * size)
            return _as_tensor(np.frombuffer(content, np.uint8).reshape(stop - start, *self.shape[1:]), set())


class HubImages:
    """A split of a data set that `datasets` streams, in order: a slice before the last one restarts the stream."""

    def __init__(self, name: str, split: str, count: int | None = None, size: int | None = None) -> None:
        from lantern.data.dataset_stream import HubReader, Stream  # imports `datasets`, which takes seconds

        stream, self.name, self.size = Stream(name, split), name, size
        if stream.image_column is None:
            raise LanternError(f"{name}:{split} has no column of images; give another data set or split")
        known = stream.count or sum(1 for _ in islice(stream.read([stream.image_column]), count))
        self._count = known if count is None else min(known, count)
        self._content, self._shapes = HubReader(stream), set[tuple[int, ...]]()

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, which: slice) -> Tensor:
        numbers = range(*which.indices(len(self)))
        images = (_pixels(partial(self._content, "", None, i), self.size, f"image {i} of {self.name}") for i in numbers)
        return _as_tensor(images, self._shapes)


def open_images(source: str | Path, size: int | None = None) -> Images:
    """source: a folder, an .npz with `arr_0`, or a data set of the Hub as user/name:split or user/name:split[:5000].
    size: images are cropped to a square and resized to it; None leaves them as they are."""
    path = Path(str(source)).expanduser()
    if path.is_dir() and str(source).strip():  # else the working folder
        return FolderImages(path, size)
    if path.is_file():
        if not holds_images(path):
            raise LanternError(f"{path} holds no images; give a folder of images, or an .npz of numpy with {ARRAY}")
        return ArrayImages(path, size)
    if found := HUB_SOURCE.fullmatch(str(source)):
        name, split, count = found.groups()
        return HubImages(name, split, count and int(count), size)
    raise LanternError(f"nothing at {source}; give a folder of images, an .npz, or a Hub data set as user/name:split")


def holds_images(source: str | Path) -> bool:
    return ARRAY in _parts_of(source)


def read_statistics(source: str | Path) -> tuple[np.ndarray, np.ndarray] | None:
    """The mean [F] and covariance [F, F] of features, float64, of an .npz that has them."""
    if not set(STATISTICS) <= _parts_of(source):
        return None
    with _readable(source), np.load(Path(source).expanduser()) as file:
        mean, covariance = (file[name].astype(np.float64) for name in STATISTICS)
    if mean.ndim != 1 or not mean.size or covariance.shape != (len(mean),) * 2:
        raise LanternError(f"{source} has mu {[*mean.shape]} and sigma {[*covariance.shape]}; give one network's")
    if not np.isfinite(mean).all() or not np.isfinite(covariance).all():
        raise LanternError(f"{source} has values in mu or sigma that are no numbers; compute them again")
    return mean, covariance


def _readable(source: str | Path) -> AbstractContextManager[None]:
    """One sentence for whatever zipfile, zlib and numpy raise on a damaged file."""
    return explaining(f"{source} cannot be read", "write or fetch it again", LanternError)


def _parts_of(source: str | Path) -> set[str]:
    """The names of the arrays of an .npz; none of anything else."""
    path = Path(source).expanduser()
    if not path.is_file() or (path.suffix != ".npz" and not is_zipfile(path)):
        return set()
    with _readable(source), ZipFile(path) as file:
        return {name.removesuffix(".npy") for name in file.namelist()}


def _pixels(read: Callable[[], bytes], size: int | None, name: str) -> np.ndarray:
    with explaining(f"{name} cannot be read", "repair it or take it out", LanternError):
        return load_image(read(), size)


def _as_tensor(images: Iterable[np.ndarray], shapes: set[tuple[int, ...]]) -> Tensor:
    """uint8 [H, W, 3] each -> [N, 3, H, W] in [0, 1]. shapes: of those read before, to which these are added."""
    listed = list(images)
    shapes |= {image.shape for image in listed}
    if len(shapes) > 1:
        sizes = " and ".join(f"{width} x {height}" for height, width, _ in sorted(shapes)[:2])
        raise LanternError(f"the images differ in size ({sizes}); make them one size, or give lantern.score size=256")
    return torch.from_numpy(np.stack(listed)).permute(0, 3, 1, 2).float() / 255


def batches(images: Images, size: int = BATCH_SIZE) -> Iterator[Tensor]:
    return (images[start : start + size] for start in range(0, len(images), size))


def as_bytes(images: Tensor) -> Tensor:
    """Pixels in [0, 1] as bytes, as image files hold them."""
    return (images.contiguous() * 255).round().clamp(0, 255).byte()


def arrays_of(images: Images) -> Iterator[np.ndarray]:
    """uint8 [H, W, 3] each."""
    for batch in batches(images):
        yield from as_bytes(batch).permute(0, 2, 3, 1).contiguous().numpy()


def write_adm(folder: Path, images: Images, prompts: Sequence[Mapping], numbers: Sequence[int]) -> None:
    """An .npz of all images, for ADM's evaluator."""
    shape = (len(images), images[:1].shape[2], images[:1].shape[3], 3)

    def write(path: Path) -> None:
        with ZipFile(path, "w") as archive, archive.open(f"{ARRAY}.npy", "w", force_zip64=True) as file:
            np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
            for pixels in arrays_of(images):
                file.write(pixels.tobytes())

    replace_file(folder / f"samples_{'x'.join(map(str, shape))}.npz", write)


def write_geneval(folder: Path, images: Images, prompts: Sequence[Mapping], numbers: Sequence[int]) -> None:
    """A folder for each prompt, with its line of GenEval's evaluation_metadata.jsonl and its images."""
    counts = [0] * len(prompts)
    for number, prompt in enumerate(prompts):
        place = folder / f"{number:05d}"
        (place / "samples").mkdir(parents=True, exist_ok=True)
        (place / "metadata.jsonl").write_text(json.dumps(prompt) + "\n")
    for number, pixels in zip(numbers, arrays_of(images), strict=True):
        Image.fromarray(pixels).save(folder / f"{number:05d}" / "samples" / f"{counts[number]:04d}.png")
        counts[number] += 1


def write_dpg(folder: Path, images: Images, prompts: Sequence[Mapping], numbers: Sequence[int]) -> None:
    """A grid of each prompt's images, 2 x 2 of four, under the name of the prompt's file."""
    given = (str(prompt.get("name") or f"{number:05d}") for number, prompt in enumerate(prompts))
    names = [Path(name).name for name in given]  # of the folder alone, whatever a foreign table says
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise LanternError(f"prompts: {twice[0]!r} is the name of several; give each a name of its own, or none a name")
    for number, name in enumerate(names):
        own = [next(arrays_of(images[i : i + 1])) for i, of in enumerate(numbers) if of == number]
        across = ceil(len(own) ** 0.5)
        height, width, _ = own[0].shape
        grid = Image.new("RGB", (across * width, ceil(len(own) / across) * height))
        for place, pixels in enumerate(own):
            grid.paste(Image.fromarray(pixels), (place % across * width, place // across * height))
        grid.save(folder / f"{name}.png")


LAYOUTS = {"adm": write_adm, "geneval": write_geneval, "dpg": write_dpg}


def write_layout(
    layout: str, folder: str | Path, images: Images, prompts: Sequence[Mapping], numbers: Sequence[int]
) -> None:
    """numbers: of each image's prompt."""
    if layout not in LAYOUTS:
        raise LanternError(f"layout={layout} is unknown; give one of {', '.join(LAYOUTS)}")
    if layout != "adm":  # whose one file is replaced
        if not any(prompt.get("prompt") for prompt in prompts):
            raise LanternError(f"layout={layout} is of images by prompt; give prompts=…")
        if left := next(Path(folder).rglob("*.png"), None):
            raise LanternError(f"to={folder} holds {left.name}, which would be judged along; give an empty folder")
    with writing(f"images to {folder}"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        LAYOUTS[layout](Path(folder), images, prompts, numbers)
