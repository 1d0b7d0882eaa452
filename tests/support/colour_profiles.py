"""ICC profiles made by hand: of screens with other primaries, and of a printer whose inks are not what they seem."""

import struct

import numpy as np
from PIL import ImageCms

D50 = (0.9642, 1.0, 0.8249)
SRGB = np.array([[0.43607, 0.38515, 0.14307], [0.22249, 0.71687, 0.06061], [0.01392, 0.09708, 0.7141]])  # to XYZ of D50


def screen(primaries: np.ndarray) -> bytes:
    """sRGB's curves with other primaries: the columns of a matrix to XYZ."""
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    for tag, colour in zip((b"rXYZ", b"gXYZ", b"bXYZ"), primaries.T, strict=True):
        offset = struct.unpack(">I", profile[(place := profile.index(tag) + 4) : place + 4])[0] + 8
        profile[offset : offset + 12] = struct.pack(">3i", *(round(65536 * value) for value in colour))
    return bytes(profile)


def printer(inks: dict[tuple[int, ...], tuple[int, int, int]]) -> bytes:
    """CMYK -> Lab, as bytes, by a table of full and absent inks (lut8); white where `inks` names no colour."""
    grid = np.full((2, 2, 2, 2, 3), (255, 128, 128), np.uint8)
    for which, lab in inks.items():
        grid[which] = lab
    ramp, matrix = bytes(range(256)), struct.pack(">9i", *(65536 * int(value) for value in np.eye(3).flat))
    table = b"mft1" + bytes([0, 0, 0, 0, 4, 3, 2, 0]) + matrix + 4 * ramp + grid.tobytes() + 3 * ramp
    white = b"XYZ " + bytes(4) + struct.pack(">3i", *(round(65536 * value) for value in D50))
    tags = struct.pack(">I4sII4sII", 2, b"A2B0", 156, len(table), b"wtpt", 156 + len(table), len(white))
    head = struct.pack(
        ">I4sI4s4s4s12x4s28x3i48x", 0, b"lcms", 0x02400000, b"prtr", b"CMYK", b"Lab ", b"acsp", 63190, 65536, 54061
    )
    whole = head + tags + table + white
    return struct.pack(">I", len(whole)) + whole[4:]
