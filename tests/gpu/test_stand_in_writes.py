"""Writes where operands are on several devices, on the stand-in."""

import shutil

import pytest

from tests.gpu.test_stand_in import run

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


def test_copies_cross_devices_and_other_writes_are_refused(tmp_path):
    run(
        """
there = td.arange(3.0).to("cuda")
for copy in (lambda a, b: a.copy_(b), td.compile(lambda a, b: a.copy_(b))):
    here = td.zeros(2, 3)
    assert copy(here, there) is not None and here.tolist() == [[0, 1, 2]] * 2
    back = td.zeros(3, device="cuda")
    copy(back, here[0] + 1)
    assert back.device == "cuda:0"
here[0] = there
here[1, 0] = there[2]
here[1, 1:].fill_(there[2])
assert here.tolist() == [[0, 1, 2], [2, 2, 2]]

single = td.tensor(0.0)
for write in (lambda a, b: a.add_(b), lambda a, b: a.masked_fill_(b > 0, 1.0), lambda a, b: td.maximum(a, b, out=a)):
    for fn in (write, td.compile(write)):
        try:
            fn(single, there[1])
        except td.DeviceError as error:
            assert "its tensors are on different devices: cpu, " in str(error), error
        else:
            raise AssertionError(write)
assert single.item() == 0
there.mul_(single)  # a single element on the host goes along
""",
        tmp_path,
    )


def test_gradients_of_copies_go_back_to_where_their_source_is(tmp_path):
    run(
        """
source = td.ones(3, device="cuda", requires_grad=True)
target = td.zeros(3).copy_(source)
assert target.device == "cpu"
target.backward(td.tensor([1.0, 2.0, 3.0]))
assert source.grad.device == "cuda:0" and source.grad.cpu().tolist() == [1, 2, 3]
""",
        tmp_path,
    )


def test_gradients_on_several_devices_are_clipped_by_one_norm(tmp_path):
    run(
        """
from tandem.nn.utils import clip_grad_norm_
parameters = [td.nn.Parameter(td.ones(2, device=d)) for d in ("cuda", "cpu", "cuda")]
for norm in (2.0, 1.0, td.inf):
    for p in parameters:
        p.grad = td.ones_like(p)
    assert clip_grad_norm_(parameters, 0.1, norm).device == "cuda:0"
    assert [p.grad.device for p in parameters] == ["cuda:0", "cpu", "cuda:0"]
""",
        tmp_path,
    )


def test_sequences_are_packed_where_they_are(tmp_path):
    run(
        """
from tandem.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence
words = [td.ones(n, 6, device="cuda") for n in (5, 9, 2)]
lstm = td.nn.LSTM(6, 4).to("cuda")
padded = pack_padded_sequence(pad_sequence(words), [5, 9, 2], enforce_sorted=False)
for packed in (pack_sequence(words, enforce_sorted=False), padded):
    out, (h, c) = lstm(packed)
    assert {t.device for t in (out.data, h, c, packed.sorted_indices, packed.unsorted_indices)} == {"cuda:0"}
    assert packed.batch_sizes.device == "cpu" and packed.sorted_indices.cpu().tolist() == [1, 0, 2]
    padded, lengths = pad_packed_sequence(out)
    assert padded.device == "cuda:0" and lengths.tolist() == [5, 9, 2]
    assert packed.to("cpu").unsorted_indices.device == "cpu"
""",
        tmp_path,
    )


def test_lengths_and_masks_in_host_memory_go_with_tensors_on_a_device(tmp_path):
    run(
        """
F = td.nn.functional
scores = td.zeros(20, 3, 5, device="cuda", requires_grad=True)
for targets in (td.ones(3, 4, dtype=td.int64), td.ones(3, 4, dtype=td.int64).cuda(), td.ones(9, dtype=td.int64)):
    loss = F.ctc_loss(F.log_softmax(scores, -1), targets, td.tensor([20, 19, 18]), td.tensor([4, 3, 2]))
    assert loss.device == "cuda:0"
    loss.backward()
layer = td.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).cuda()
mask = td.nn.Transformer.generate_square_subsequent_mask(6)
assert layer(td.ones(2, 6, 8, device="cuda"), mask, is_causal=True).device == "cuda:0"
""",
        tmp_path,
    )
