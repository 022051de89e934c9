"""Text to numbers."""

import pickle

import pytest

from tandem.data import transforms as T

PIL = pytest.importorskip("PIL.Image")


def test_characters():
    encode = T.Characters("abc?", unknown="?")
    assert [0, 2, 3] == encode("acz").tolist()
    assert "ac?" == encode.decode(encode("acz"))
    assert (0,) == encode("").shape
    with pytest.raises(ValueError, match="'z' is not in the vocabulary"):
        T.Characters("ab")("z")


def test_tokenize(tmp_path):
    pytest.importorskip("tokenizers")
    tokenize = T.Tokenize.train(["the cat sat", "the mat"] * 5, vocab_size=40, length=12)
    assert (12,) == tokenize("the cat").shape
    path = tmp_path / "tokens.json"
    tokenize._tokenizer.save(str(path))
    again = T.Tokenize(str(path))
    assert "the cat" == again.decode(again("the cat"))
    assert again("the cat").tolist() == pickle.loads(pickle.dumps(again))("the cat").tolist()
