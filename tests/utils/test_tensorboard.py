"""Event files."""

import struct

import pytest

import tandem as td


def test_summary_writer(tmp_path):
    from tandem.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("loss", td.tensor(0.5), 3)
        writer.add_scalars("both", {"a": 1.0, "b": 2.0}, 3)
        writer.add_text("note", "a text")
        writer.add_histogram("weights", td.randn(100), 1)
        writer.add_image("picture", td.rand(3, 4, 5), 1)
        writer.add_hparams({"lr": 0.1}, {"accuracy": 0.9})
        with pytest.raises(ValueError, match="channels"):
            writer.add_image("picture", td.rand(2, 4, 5))
    (file,) = tmp_path.iterdir()
    data, events = file.read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        events.append(data[12 : 12 + length])
        data = data[16 + length :]
    assert len(events) == 9
    text = b"".join(events)
    for part in (b"loss", b"both/a", b"a text", b"weights", b"\x89PNG", b"accuracy"):
        assert part in text


def test_a_graph_has_the_operators_of_a_call(tmp_path):
    from tandem.utils.tensorboard import SummaryWriter

    model = td.nn.Sequential(td.nn.Linear(2, 3), td.nn.ReLU())
    with SummaryWriter(tmp_path) as writer:
        writer.add_graph(model, td.ones(1, 2))
    (file,) = tmp_path.iterdir()
    data = file.read_bytes()
    for part in (b"matmul", b"relu", b"input"):
        assert part in data


def test_a_writer_that_was_closed_goes_on_in_another_file(tmp_path):
    from tandem.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(tmp_path)
    writer.add_scalar("before", 1.0)
    writer.close()
    writer.flush()
    writer.add_scalar("after", 2.0)
    writer.close()
    first, second = sorted(tmp_path.iterdir(), key=lambda f: b"after" in f.read_bytes())
    assert b"before" in first.read_bytes()
    assert b"after" in second.read_bytes()
