"""Text to numbers."""

from __future__ import annotations

from tandem import _runtime, dtypes
from tandem.data.transforms.general import Transform
from tandem.errors import UnsupportedError, ValueRangeError


class Characters(Transform):
    """Text as numbers of characters; `vocabulary` is a text or list whose order gives the numbers.

    >>> encode = td.data.transforms.Characters.of("hello")
    >>> encode("hell"), encode.decode(encode("hole"))
    (tensor([1, 0, 2, 2]), 'hole')
    """

    def __init__(self, vocabulary, unknown: str | None = None):
        self.vocabulary = list(vocabulary)
        self._numbers = {c: i for i, c in enumerate(self.vocabulary)}
        if unknown is not None and unknown not in self._numbers:
            raise ValueRangeError("Characters", f"unknown={unknown!r} is not in the vocabulary")
        self.unknown = unknown

    @classmethod
    def of(cls, text: str) -> Characters:
        """With the characters of a text, in their own order."""
        return cls(sorted(set(text)))

    def __len__(self):
        return len(self.vocabulary)

    def __call__(self, text: str):
        numbers, other = self._numbers, None if self.unknown is None else self._numbers[self.unknown]
        try:
            found = [numbers[c] for c in text] if other is None else [numbers.get(c, other) for c in text]
        except KeyError as error:
            raise ValueRangeError(
                "Characters", f"{error.args[0]!r} is not in the vocabulary", fix="pass unknown="
            ) from None
        return _runtime.from_data(found, dtypes.int64) if found else _runtime.empty((0,), dtypes.int64)

    def decode(self, numbers) -> str:
        """The text of numbers."""
        return "".join(self.vocabulary[int(i)] for i in (numbers.tolist() if hasattr(numbers, "tolist") else numbers))

    def __repr__(self):
        return f"Characters({len(self)} characters)"


class Tokenize(Transform):
    """Text as numbers of tokens, by the package `tokenizers`: a Tokenizer, its JSON file, or the name of a built-in kind to train.

    length: cut or pad (with pad_id) to this many tokens

    >>> tokenize = td.data.transforms.Tokenize.train(["low lower lowest", "new newer"], vocab_size=30)
    >>> tokenize.decode(tokenize("lower"))
    'lower'
    """

    def __init__(self, tokenizer, length: int | None = None, pad_id: int = 0):
        self.length, self.pad_id = length, pad_id
        if isinstance(tokenizer, str):
            tokenizer = _tokenizers().Tokenizer.from_file(tokenizer)
        self._tokenizer = tokenizer

    @classmethod
    def train(cls, texts, vocab_size: int = 8000, length: int | None = None) -> Tokenize:
        """A byte-level BPE tokenizer made from texts."""
        package = _tokenizers()
        tokenizer = package.Tokenizer(package.models.BPE())
        tokenizer.pre_tokenizer = package.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = package.decoders.ByteLevel()
        tokenizer.train_from_iterator(texts, package.trainers.BpeTrainer(vocab_size=vocab_size, show_progress=False))
        return cls(tokenizer, length)

    def __len__(self):
        return self._tokenizer.get_vocab_size()

    def __call__(self, text: str):
        numbers = self._tokenizer.encode(text).ids
        if self.length is not None:
            numbers = numbers[: self.length] + [self.pad_id] * (self.length - len(numbers))
        return _runtime.from_data(numbers, dtypes.int64) if numbers else _runtime.empty((0,), dtypes.int64)

    def decode(self, numbers) -> str:
        """The text of tokens."""
        return self._tokenizer.decode(numbers.tolist() if hasattr(numbers, "tolist") else list(numbers))


def _tokenizers():
    try:
        import tokenizers
        import tokenizers.decoders
        import tokenizers.models
        import tokenizers.pre_tokenizers
        import tokenizers.trainers
    except ImportError:
        raise UnsupportedError(
            "Tokenize", "the package tokenizers is not installed", fix="pip install tokenizers, or 'tandem-dl[data]'"
        ) from None
    return tokenizers
