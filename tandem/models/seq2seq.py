"""Translation with a deep LSTM encoder and decoder and attention between them, in the style of GNMT (Wu et al., 2016).

The first layer of the encoder reads in both directions; layers from the third on have residual connections; every layer of the
decoder sees the attention that the first one asked for.
"""

from __future__ import annotations

import tandem as td
from tandem import nn
from tandem.nn import functional as F


class AdditiveAttention(nn.Module):
    """Bahdanau's: query (t, n, d), memory (s, n, d) -> what each query finds (t, n, d), and where it looked (t, n, s)."""

    def __init__(self, width: int):
        super().__init__()
        self.query, self.key = nn.Linear(width, width, bias=False), nn.Linear(width, width)
        self.score = nn.Linear(width, 1, bias=False)

    def forward(self, query, memory, padding=None):
        sums = td.tanh(self.query(query).unsqueeze(1) + self.key(memory).unsqueeze(0))  # (t, s, n, d)
        scores = self.score(sums).squeeze(-1).permute(0, 2, 1)  # (t, n, s)
        if padding is not None:
            scores = td.where(padding.unsqueeze(0), -1e9, scores)
        weights = F.softmax(scores, -1)
        found = td.matmul(weights.permute(1, 0, 2), memory.permute(1, 0, 2))  # (n, t, d)
        return found.permute(1, 0, 2), weights


class Encoder(nn.Module):
    def __init__(self, vocabulary: int, width: int, layers: int, dropout: float):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.dropout = nn.Dropout(dropout)
        self.first = nn.LSTM(width, width, bidirectional=True)
        self.second = nn.LSTM(2 * width, width)
        self.rest = nn.ModuleList([nn.LSTM(width, width) for _ in range(layers - 2)])

    def forward(self, source):
        x, _ = self.first(self.dropout(self.embedding(source)))
        x, _ = self.second(self.dropout(x))
        for layer in self.rest:
            y, _ = layer(self.dropout(x))
            x = x + y
        return x


class Decoder(nn.Module):
    def __init__(self, vocabulary: int, width: int, layers: int, dropout: float):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.dropout = nn.Dropout(dropout)
        self.first = nn.LSTM(width, width)
        self.attention = AdditiveAttention(width)
        self.rest = nn.ModuleList([nn.LSTM(2 * width, width) for _ in range(layers - 1)])
        self.classifier = nn.Linear(width, vocabulary)

    def forward(self, target, memory, padding=None, state=None):
        state = state or [None] * (1 + len(self.rest))
        x, first = self.first(self.dropout(self.embedding(target)), state[0])
        found, _ = self.attention(x, memory, padding)
        states = [first]
        for i, layer in enumerate(self.rest):
            y, s = layer(td.cat([self.dropout(x), found], -1), state[i + 1])
            x = x + y if i > 0 else y
            states.append(s)
        return self.classifier(self.dropout(x)), states


class GNMT(nn.Module):
    """source: (s, n), target: (t, n) whole numbers -> scores of the target's next tokens (t, n, vocabulary)

    padding: (n, s), true where the source is only filled up.
    """

    def __init__(self, vocabulary: int, width: int = 1024, layers: int = 4, dropout: float = 0.2):
        super().__init__()
        self.encoder = Encoder(vocabulary, width, layers, dropout)
        self.decoder = Decoder(vocabulary, width, layers, dropout)

    def forward(self, source, target, padding=None):
        return self.decoder(target, self.encoder(source), padding)[0]

    @td.no_grad()
    def translate(self, source, start: int, end: int, longest: int = 50):
        """The likeliest next token again and again: (longest, n) at most, until every sentence has ended."""
        memory, state = self.encoder(source), None
        token = td.full((1, source.shape[1]), start, dtype=td.int64, device=source.device)
        ended, out = td.zeros(source.shape[1], dtype=td.bool, device=source.device), []
        for _ in range(longest):
            scores, state = self.decoder(token, memory, state=state)
            token = scores.argmax(-1)
            out.append(token[0])
            ended = ended | (token[0] == end)
            if ended.all():
                break
        return td.stack(out)
