"""What is left out says how to write it."""

import pytest

import tandem.v1 as tf


@pytest.mark.parametrize(
    ("space", "name", "advice"),
    [
        (tf, "TensorArray", "tf.scan or tf.map_fn"),
        (tf, "layers", "td.nn modules"),
        (tf, "summary", "SummaryWriter"),
        (tf.nn, "dynamic_rnn", "tf.scan"),
        (tf.nn, "rnn_cell", "td.nn.LSTM"),
        (tf.train, "shuffle_batch", "RandomShuffleQueue"),
        (tf.train, "string_input_producer", "DataLoader"),
    ],
)
def test_what_is_left_out_says_how_to_write_it(space, name, advice):
    with pytest.raises(AttributeError, match=advice):
        getattr(space, name)
