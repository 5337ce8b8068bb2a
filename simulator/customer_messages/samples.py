"""Small sample files for customers' media, used when the caller of `POST /sim/inbound` gives no file."""

import base64
import struct
import zlib


def png(width: int = 320, height: int = 200) -> bytes:
    """A picture: a soft two-colour gradient."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(
        b"\x00" + b"".join(bytes((40 + x * 120 // width, 120 + y * 100 // height, 170)) for x in range(width))
        for y in range(height)
    )
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows, 9))
        + chunk(b"IEND", b"")
    )


def pdf() -> bytes:
    """A document of one empty page."""
    objects = (
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 200]>>",
    )
    content, offsets = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        offsets.append(len(content))
        content += b"%d 0 obj%bendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    start = len(content)
    content += b"xref\n0 4\n0000000000 65535 f \n" + table
    return content + b"trailer<</Size 4/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % start


# One transparent pixel.
WEBP = base64.b64decode("UklGRhoAAABXRUJQVlA4TA0AAAAvAAAAEAcQERGIiP4HAA==")
# An Ogg page with an Opus header, and an MP4 without tracks. They pass type checks; players show nothing.
_OPUS_HEAD = b"OpusHead\x01\x01\x38\x01\x80\xbb\x00\x00\x00\x00\x00"
OGG = b"OggS\x00\x02" + bytes(8) + b"\x01\x00\x00\x00" + bytes(4) + bytes(4) + b"\x01\x13" + _OPUS_HEAD
MP4 = b"\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00mp42isom" + b"\x00\x00\x00\x08moov"


def sample(kind: str) -> tuple[bytes, str, str | None]:
    """The sample file of a message type: bytes, MIME type and file name."""
    match kind:
        case "image":
            return png(), "image/png", None
        case "document":
            return pdf(), "application/pdf", "document.pdf"
        case "sticker":
            return WEBP, "image/webp", None
        case "audio":
            return OGG, "audio/ogg; codecs=opus", None
        case "video":
            return MP4, "video/mp4", None
    raise ValueError(f"there is no sample of {kind!r}")
