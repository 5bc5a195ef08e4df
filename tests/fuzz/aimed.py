"""Mutations of the fields that a parser relies on: sizes, counts, addresses, types, checksums."""

from __future__ import annotations

import hashlib
import io
import json
import random
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any

import h5py  # type: ignore[import-untyped, unused-ignore]

from headscope.atomic import MARK
from tests.results.sealing import unsealed

STATES = ("damaged", "by a stranger", "without a seal")
"""State of the seal: left as it was, made by another user for the mutation, or cut off."""
SIGNATURES = re.compile(rb"TREE|SNOD|HEAP|GCOL|OHDR|OCHK|BTHD|BTLF|FRHP|FHDB|FSHD")
HDF5 = b"\x89HDF\r\n\x1a\n"
NUMBERS = (0, 1, 2, 7, 8, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
NUMBERS += (1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
TYPES = (b"'<f4'", b"'>f8'", b"'<i8'", b"'|O'", b"'|V8'", b"'<U2'", b"'|S999999999'", b"'<M8'")
SHAPES = (b"()", b"(0,)", b"(-1,)", b"(1, 1)", b"(9999999999,)", b"(2, 2, 2, 2)", b"[3]", b"(1e9,)")
TEXTS = (b"(" * 40, b"-" * 60, b"True", b"}", b"\x00")


def with_state(mutated: bytes, original: bytes, state: str, chance: random.Random) -> bytes:
    """Return mutated content with a seal in one of the `STATES`."""
    if state == "damaged":
        return mutated + original[len(unsealed(original)) :]
    if state == "without a seal":
        return mutated
    return mutated + MARK + hashlib.sha256(mutated).digest() + chance.randbytes(32)


def aimed(original: bytes, chance: random.Random) -> bytes:
    """Return other content than that of a sealed file, by some fields of its format."""
    content = unsealed(original)
    while True:
        if content.startswith(HDF5):
            mutated = _mutated_hdf5(content, chance)
        elif content.startswith(b"PK"):
            mutated = _mutated_zip(content, chance)
        elif content[:1] in b"[{":
            mutated = mutated_json(content, chance)
        else:
            mutated = _with_numbers(content, [(0, min(len(content), 200))], chance)
        if mutated != content:
            return mutated


def _with_numbers(
    content: bytes, regions: list[tuple[int, int]], chance: random.Random, most: int = 3
) -> bytes:
    """Overwrite a few numbers in one or two regions; also by positions of other regions."""
    mutated = bytearray(content)
    for _ in range(chance.randint(1, most)):
        start, end = chance.choice(regions)
        width = chance.choice((1, 2, 4, 8))
        place = chance.randrange(start, max(start + 1, end))
        old = int.from_bytes(mutated[place : place + width], "little")
        other = chance.choice(regions)[0]
        values = (chance.choice(NUMBERS), old + 1, old - 1, old ^ 1 << chance.randrange(8 * width))
        value = chance.choice((*values, other, len(content), chance.getrandbits(8 * width)))
        number = (value % (1 << 8 * width)).to_bytes(width, "little")
        mutated[place : place + width] = number[: max(0, len(mutated) - place)]
    return bytes(mutated)


def _mutated_hdf5(content: bytes, chance: random.Random) -> bytes:
    parts = _hdf5_parts(content)
    aim = chance.choice(sorted(parts))
    mutated = _with_numbers(content, parts[aim], chance)
    return _with_checksums(mutated, content) if chance.random() < 0.8 else mutated


@cache
def _hdf5_parts(content: bytes) -> dict[str, list[tuple[int, int]]]:
    """Return the places of each kind of structure in an HDF5 file."""
    parts: dict[str, list[tuple[int, int]]] = {"superblock": [(8, 96)]}
    for found in SIGNATURES.finditer(content):
        place = found.start()
        parts.setdefault(found[0].decode(), []).append((place + 4, place + 60))
        if found[0] == b"GCOL":
            parts["heap objects"] = list(_heap_objects(content, place))
    with h5py.File(io.BytesIO(content), "r") as root:
        items = [root]
        root.visititems(lambda _, item: items.append(item))
        for item in items:
            address = h5py.h5o.get_info(item.id).addr
            parts.setdefault("object headers", []).append((address, address + 200))
            for name in item.attrs:
                for found in re.finditer(re.escape(name.encode()) + b"\0", content):
                    place = found.start()
                    parts.setdefault("attributes", []).append((place - 10, place + 60))
            if isinstance(item, h5py.Dataset):
                parts.setdefault("values", []).extend(_value_places(item))
    return parts


def _heap_objects(content: bytes, heap: int) -> Iterator[tuple[int, int]]:
    """Yield the header of each object of a global heap, its free space last."""
    place = heap + 16
    while place + 16 <= len(content):
        yield place, place + 16
        index, size = struct.unpack_from("<H6xQ", content, place)
        if not index:
            return
        place += 16 + (size + 7) // 8 * 8


def _value_places(item: Any) -> Iterator[tuple[int, int]]:
    if item.chunks is not None:
        for number in range(item.id.get_num_chunks()):
            chunk = item.id.get_chunk_info(number)
            yield chunk.byte_offset, chunk.byte_offset + chunk.size
    elif (place := item.id.get_offset()) is not None:
        yield place, place + item.nbytes


def _with_checksums(mutated: bytes, original: bytes) -> bytes:
    """Correct the checksums of HDF5's structures, as an attacker would."""
    fixed = bytearray(mutated)
    for start, end in _checksums(original):
        if mutated[start:end] != original[start:end]:
            fixed[end : end + 4] = struct.pack("<I", lookup3(mutated[start:end]))
    return bytes(fixed)


@cache
def _checksums(content: bytes) -> tuple[tuple[int, int], ...]:
    """Return start and end of each structure that a checksum follows."""
    found = []
    for place in (0, *(match.start() for match in SIGNATURES.finditer(content))):
        sizes = {44, 34, 142}  # superblock, head of a B-tree, head of a heap
        name = content[place : place + 4]
        if name == b"OHDR":
            flags = content[place + 5]
            head = 6 + 16 * bool(flags & 0x20) + 4 * bool(flags & 0x10)
            width = 1 << (flags & 3)
            size = int.from_bytes(content[place + head : place + head + width], "little")
            sizes = {head + width + size}
        elif name == b"OCHK":
            pointer = content.find(struct.pack("<Q", place)) + 8
            sizes = {struct.unpack_from("<Q", content, pointer)[0] - 4}
        elif name == b"BTLF":
            sizes = {6 + n * size for n in range(60) for size in (11, 13, 15, 17)}
        for size in sizes:
            end = place + size
            if size < 1 << 16 and content[end : end + 4] == struct.pack(
                "<I", lookup3(content[place:end])
            ):
                found.append((place, end))
    return tuple(found)


def lookup3(data: bytes) -> int:
    """Return HDF5's checksum of metadata (Bob Jenkins, lookup3.c)."""
    mask = 0xFFFFFFFF

    def turned(x: int, n: int) -> int:
        return (x << n | x >> (32 - n)) & mask

    a = b = c = (0xDEADBEEF + len(data)) & mask
    if not data:
        return c
    words = struct.unpack(f"<{-(-len(data) // 12) * 3}I", data + bytes(-len(data) % 12))
    for at in range(0, len(words) - 3, 3):
        a, b, c = (a + words[at]) & mask, (b + words[at + 1]) & mask, (c + words[at + 2]) & mask
        a, c = (a - c) & mask ^ turned(c, 4), (c + b) & mask
        b, a = (b - a) & mask ^ turned(a, 6), (a + c) & mask
        c, b = (c - b) & mask ^ turned(b, 8), (b + a) & mask
        a, c = (a - c) & mask ^ turned(c, 16), (c + b) & mask
        b, a = (b - a) & mask ^ turned(a, 19), (a + c) & mask
        c, b = (c - b) & mask ^ turned(b, 4), (b + a) & mask
    a, b, c = (a + words[-3]) & mask, (b + words[-2]) & mask, (c + words[-1]) & mask
    c = ((c ^ b) - turned(b, 14)) & mask
    a = ((a ^ c) - turned(c, 11)) & mask
    b = ((b ^ a) - turned(a, 25)) & mask
    c = ((c ^ b) - turned(b, 16)) & mask
    a = ((a ^ c) - turned(c, 4)) & mask
    b = ((b ^ a) - turned(a, 14)) & mask
    return ((c ^ b) - turned(b, 24)) & mask


def _mutated_zip(content: bytes, chance: random.Random) -> bytes:
    """Mutate an npz: headers of arrays, local headers, directory, end record or values."""
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        entries, directory = file.infolist(), file.start_dir
    entry = chance.choice(entries)
    local = entry.header_offset
    data = local + 30 + sum(struct.unpack_from("<HH", content, local + 26))
    n_header = struct.unpack_from("<H", content, data + 8)[0]
    regions = {
        "local": (local, data),
        "npy": (data, data + 10),
        "values": (data + 10 + n_header, data + entry.compress_size),
        "directory": (directory, len(content) - 22),
        "end": (len(content) - 22, len(content)),
    }
    aim = chance.choice(("header", "meta", *regions))
    if aim in regions:
        mutated = _with_numbers(content, [regions[aim]], chance)
    elif aim == "header":
        header = content[data + 10 : data + 10 + n_header]
        mutated = content.replace(header, _mutated_header(header, chance), 1)
    else:
        mutated = re.sub(
            rb'("shard": |"through": )\d+', lambda m: m[1] + b"%d" % chance.randrange(9), content
        )
    if chance.random() < 0.7 and len(mutated) == len(content):  # the CRC, too
        crc = struct.pack("<I", zlib.crc32(mutated[data : data + entry.compress_size]))
        old = struct.pack("<I", entry.CRC)
        mutated = mutated.replace(old, crc)
    return mutated


def _mutated_header(header: bytes, chance: random.Random) -> bytes:
    """Return an npy header of the same length with another type, order or shape."""
    aim = chance.randrange(4)
    if aim == 0:
        changed = re.sub(rb"'[<>|=][^']*'", chance.choice(TYPES), header)
    elif aim == 1:
        changed = header.replace(b"False", b"True")
    elif aim == 2:
        changed = re.sub(rb"\([\d, ]*\)", chance.choice(SHAPES), header)
    else:
        place = chance.randrange(len(header))
        changed = header[:place] + chance.choice(TEXTS) + header[place:]
    return changed.rstrip()[: len(header) - 1].ljust(len(header) - 1) + b"\n"


JUNK = (None, True, 0, -1, 10**30, 1.5, float("nan"), "", "x", "../x", [], {}, [[]], {"x": 1})


def mutated_json(content: bytes, chance: random.Random) -> bytes:
    """Return JSON with another value, without a key, or with other bytes."""
    aim = chance.randrange(4)
    if aim == 0:
        return _with_numbers(content, [(0, len(content))], chance)
    if aim == 1:
        return chance.choice((b"", b"[]", b"{}", b"5", b'"x"', b"null", b"[" * 99999, content[:-9]))
    whole = json.loads(content)
    place, key = chance.choice(list(_places(whole)))
    if aim == 2 and isinstance(place, dict):
        del place[key]
    else:
        place[key] = chance.choice(JUNK)
    return json.dumps(whole, indent=1).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container in a JSON value with each of its keys."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])
