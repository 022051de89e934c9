"""td.set_default_device and device=: whatever is made without a device of its own is on it. On a stand-in for a device."""

import shutil

import pytest

from tests.gpu.test_stand_in import run

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

LAYERS = """
import inspect
ARGUMENTS = {  # of layers that have parameters or buffers, by a part of their name
    "AdaptiveLogSoftmaxWithLoss": (8, 10, [2, 5]), "Bilinear": (3, 4, 5), "Embedding": (5, 4), "LayerNorm": (4,), "RMSNorm": (4,),
    "GroupNorm": (2, 4), "MultiheadAttention": (8, 2), "LocalResponseNorm": (2,), "Transformer": (8, 2, 1, 1, 8),
    "TransformerEncoderLayer": (8, 2, 8), "TransformerDecoderLayer": (8, 2, 8), "PReLU": (3,),
    "LazyLinear": (4,), "Linear": (4, 3), "LSTMCell": (4, 3), "GRUCell": (4, 3), "RNNCell": (4, 3), "LSTM": (4, 3), "GRU": (4, 3),
    "RNN": (4, 3), "LazyConv": (4, 3), "Conv": (4, 3, 2), "LazyBatchNorm": (), "LazyInstanceNorm": (), "BatchNorm": (4,),
    "InstanceNorm": (4,), "EmbeddingBag": (5, 4), "SyncBatchNorm": (4,),
}
def arguments(name):
    exact = ARGUMENTS.get(name)
    return exact if exact is not None else next((a for part, a in ARGUMENTS.items() if part in name), None)
def layers():
    for name in dir(td.nn):
        kind = getattr(td.nn, name)
        if name.startswith(("TransformerEncoder", "TransformerDecoder")) and not name.endswith("Layer"):
            continue  # made of layers that they are given
        if isinstance(kind, type) and issubclass(kind, td.nn.Module) and arguments(name) is not None:
            more = {"track_running_stats": True} if "InstanceNorm" in name else {}
            try:
                inspect.signature(kind).bind(*arguments(name), **more)
            except TypeError:
                continue
            yield name, kind, arguments(name), more
def state_of(module):
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}
found = set()
"""


def test_layers_and_their_buffers_are_on_the_default_device(tmp_path):
    run(
        LAYERS
        + """
td.set_default_device("cuda")
for name, kind, given, more in layers():
    state = state_of(kind(*given, **more))
    assert all(t.device == "cuda:0" for t in state.values()), (name, {n: t.device for n, t in state.items()})
    found.add(name) if state else None
assert {"BatchNorm2d", "Linear", "LSTM", "PReLU", "LazyBatchNorm1d", "Transformer", "Conv3d", "InstanceNorm1d"} <= found, found
model = td.nn.utils.parametrizations.spectral_norm(td.nn.Linear(4, 3))
model = td.optim.swa_utils.AveragedModel(td.nn.Sequential(model, td.nn.BatchNorm1d(3)))
assert all(t.device == "cuda:0" for t in state_of(model).values())
assert td.nn.Parameter().device == td.nn.Buffer().device == "cuda:0"
""",
        tmp_path,
    )


def test_layers_are_on_the_device_that_they_are_given(tmp_path):
    run(
        LAYERS
        + """
for name, kind, given, more in layers():
    if "device" in inspect.signature(kind).parameters or name.startswith("Lazy"):
        state = state_of(kind(*given, device="cuda", **more))
        assert all(t.device == "cuda:0" for t in state.values()), (name, {n: t.device for n, t in state.items()})
        found.add(name) if state else None
assert {"BatchNorm2d", "Linear", "PReLU", "LazyBatchNorm1d", "InstanceNorm1d"} <= found, found
""",
        tmp_path,
    )


def test_models_make_what_they_need_where_their_inputs_are(tmp_path):
    run(
        """
from tandem import models
tokens, x = td.zeros(2, 4, dtype=td.int64, device="cuda"), td.ones(3, 4, device="cuda")
edges = td.zeros(2, 5, dtype=td.int64, device="cuda")
assert models.GPT2(16, 8, 1, 2, 8).cuda()(tokens).device == "cuda:0"
assert models.BERT(16, 8, 1, 2, positions=8).cuda()(tokens)[0].device == "cuda:0"
for model in (models.GCN(4, 3, 2), models.GAT(4, 3, 2, 2)):
    assert model.cuda()(x, edges).device == "cuda:0"
assert models.TreeLSTM(16, 4, 4).cuda()(models.Tree(3)).device == "cuda:0"
""",
        tmp_path,
    )


CONSTRUCTORS = """
zeros(2; ones(2; full((2,), 1.0; empty(2; arange(3; arange(3.0; linspace(0, 1, 3; logspace(0, 1, 3; eye(3; rand(2; randn(2
randint(0, 3, (2,); randperm(4; tensor([1.0]; tensor(1; tril_indices(3, 3; triu_indices(3, 3; hann_window(4; hamming_window(4
blackman_window(4; bartlett_window(4; kaiser_window(4; normal(0.0, 1.0, (2,); empty_strided((2, 2), (2, 1)
empty_permuted((2, 3), (1, 0); fft.fftfreq(4; fft.rfftfreq(4; nn.Transformer.generate_square_subsequent_mask(3; scalar_tensor(1.0
range(0, 3; uniform(0.0, 1.0, (2,); Tensor(2, 3
"""


def test_new_tensors_are_on_the_default_device_or_the_one_they_are_given(tmp_path):
    run(
        f"calls = {CONSTRUCTORS.strip()!r}.replace(chr(10), '; ').split('; ')"
        + """
for call in calls:
    assert call.startswith("Tensor") or eval(f"td.{call}, device='cuda')").device == "cuda:0", call
    assert eval(f"td.{call})").device == "cpu", call
td.set_default_device("cuda")
for call in calls:
    assert eval(f"td.{call})").device == "cuda:0", call
td.set_default_device(None)
assert td.nn.BatchNorm1d(3).running_mean.device == td.zeros(2).device == "cpu"
""",
        tmp_path,
    )
