"""A language model of stacked LSTMs (Zaremba et al., 2014)."""

from __future__ import annotations

from tandem import nn


class LSTMLanguageModel(nn.Module):
    """tokens: (time, n) whole numbers -> scores of the next token (time, n, vocabulary), and the state to go on with.

    >>> model = td.models.LSTMLanguageModel(vocabulary=50, width=8)
    >>> scores, state = model(td.zeros(5, 2, dtype=td.int64))
    >>> scores.shape
    (5, 2, 50)
    """

    def __init__(self, vocabulary: int, width: int = 256, layers: int = 2, dropout: float = 0.0, tied: bool = False):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.encoder = nn.Embedding(vocabulary, width)
        self.rnn = nn.LSTM(width, width, layers, dropout=dropout)
        self.decoder = nn.Linear(width, vocabulary)
        if tied:
            self.decoder.weight = self.encoder.weight
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)

    def forward(self, tokens, state=None):
        hidden, state = self.rnn(self.dropout(self.encoder(tokens)), state)
        return self.decoder(self.dropout(hidden)), state
