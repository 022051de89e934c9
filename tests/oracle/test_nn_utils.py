"""nn.utils against PyTorch's: norms of weights, pruning, fusion, orthogonal matrices; and single layers and functions."""

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
import torch.nn.utils.prune

import tandem as td

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]
rng = np.random.default_rng(0)


def pair(make):
    """The same layer twice, with the same weights."""
    ours, theirs = make(td.nn), make(torch.nn)
    state = {k: rng.normal(size=tuple(v.shape)) for k, v in theirs.state_dict().items()}
    state = {k: v if theirs.state_dict()[k].ndim else np.array(3) for k, v in state.items()}
    state = {k: np.abs(v) if "var" in k else v for k, v in state.items()}
    ours.load_state_dict({k: td.tensor(v.astype(np.float32)) for k, v in state.items()})
    theirs.load_state_dict({k: torch.tensor(v.astype(np.float32)) for k, v in state.items()})
    return ours, theirs


def close(a, b, rtol=1e-5, atol=1e-6):
    a, b = a.detach(), b.detach()
    assert tuple(a.shape) == tuple(b.shape)
    np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=rtol, atol=atol)


def same_state(ours, theirs):
    a, b = ours.state_dict(), theirs.state_dict()
    assert list(a) == list(b)
    for key in b:
        close(a[key], b[key])


def both(ours, theirs, x):
    """Outputs and gradients of both."""
    a, b = ours(td.tensor(x)), theirs(torch.tensor(x))
    close(a, b)
    (a**2).sum().backward()
    (b**2).sum().backward()
    theirs_by_name = dict(theirs.named_parameters())
    for name, p in ours.named_parameters():
        close(p.grad, theirs_by_name[name].grad, 1e-4, 1e-5)


LAYERS = [
    (lambda nn: nn.Linear(4, 3), (5, 4)),
    (lambda nn: nn.Conv2d(2, 4, 3), (2, 2, 6, 6)),
    (lambda nn: nn.ConvTranspose1d(2, 4, 3), (2, 2, 6)),
]


@pytest.mark.parametrize(("make", "shape"), LAYERS)
def test_weight_norm(make, shape):
    ours, theirs = pair(make)
    td.nn.utils.weight_norm(ours)
    torch.nn.utils.weight_norm(theirs)
    same_state(ours, theirs)
    both(ours, theirs, rng.normal(size=shape).astype(np.float32))
    td.nn.utils.remove_weight_norm(ours)
    torch.nn.utils.remove_weight_norm(theirs)
    same_state(ours, theirs)


@pytest.mark.parametrize(("make", "shape"), LAYERS)
def test_spectral_norm(make, shape):
    ours, theirs = pair(make)
    td.nn.utils.spectral_norm(ours, n_power_iterations=2)
    torch.nn.utils.spectral_norm(theirs, n_power_iterations=2)
    ours.load_state_dict({k: td.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    x = rng.normal(size=shape).astype(np.float32)
    both(ours, theirs, x)
    assert sorted(ours.state_dict()) == sorted(theirs.state_dict())
    ours.eval(), theirs.eval()
    close(ours(td.tensor(x)), theirs(torch.tensor(x)))
    td.nn.utils.remove_spectral_norm(ours)
    torch.nn.utils.remove_spectral_norm(theirs)
    close(ours.weight, theirs.weight)


def test_pruning():
    def make(nn):
        return nn.Sequential(nn.Conv2d(2, 6, 3), nn.Flatten(), nn.Linear(6 * 16, 5))

    ours, theirs = pair(make)
    scores = rng.normal(size=(5, 96)).astype(np.float32)
    for package, model in ((td, ours), (torch, theirs)):
        prune = package.nn.utils.prune
        prune.l1_unstructured(model[0], "weight", 0.3)
        prune.ln_structured(model[0], "weight", 2, n=2, dim=0)
        prune.l1_unstructured(model[2], "weight", 40, importance_scores=package.tensor(scores))
        prune.l1_unstructured(model[2], "weight", 0.25)
        prune.global_unstructured(
            [(model[0], "weight"), (model[2], "bias"), (model[2], "weight")], prune.L1Unstructured, amount=0.2
        )
        mask = package.ones(6)
        mask[2] = 0
        prune.custom_from_mask(model[0], "bias", mask)
        assert prune.is_pruned(model)
    assert sorted(ours.state_dict()) == sorted(theirs.state_dict())
    for key, value in theirs.state_dict().items():
        close(ours.state_dict()[key], value)
    both(ours, theirs, rng.normal(size=(3, 2, 6, 6)).astype(np.float32))
    for package, model in ((td, ours), (torch, theirs)):
        for layer, name in ((0, "weight"), (0, "bias"), (2, "weight"), (2, "bias")):
            package.nn.utils.prune.remove(model[layer], name)
        assert not package.nn.utils.prune.is_pruned(model)
    for key, value in theirs.state_dict().items():
        close(ours.state_dict()[key], value)


def test_fusion():
    for make, shape, transpose in (
        (lambda nn: nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4)), (3, 2, 6, 6), False),
        (lambda nn: nn.Sequential(nn.Conv2d(2, 4, 3, groups=2, bias=False), nn.BatchNorm2d(4)), (3, 2, 6, 6), False),
        (lambda nn: nn.Sequential(nn.ConvTranspose2d(2, 4, 3), nn.BatchNorm2d(4)), (3, 2, 6, 6), True),
        (lambda nn: nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4)), (3, 2), None),
    ):
        ours, theirs = pair(make)
        fused = []
        for package, m in ((td, ours.eval()), (torch, theirs.eval())):
            utils = package.nn.utils
            fused.append(utils.fuse_linear_bn_eval(*m) if transpose is None else utils.fuse_conv_bn_eval(*m, transpose))
        same_state(*fused)
        x = rng.normal(size=shape).astype(np.float32)
        close(fused[0](td.tensor(x)), theirs(torch.tensor(x)), 1e-4, 1e-4)


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
@pytest.mark.parametrize("how", ["matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("base", [True, False])
def test_orthogonal(shape, how, base):
    ours, theirs = pair(lambda nn: nn.Linear(*shape))
    for package, layer in ((td, ours), (torch, theirs)):
        package.nn.utils.parametrizations.orthogonal(layer, "weight", how, use_trivialization=base)
    assert sorted(ours.state_dict()) == sorted(theirs.state_dict())
    if not base:
        close(ours.parametrizations.weight.original, theirs.parametrizations.weight.original)
    ours.load_state_dict({k: td.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    close(ours.weight, theirs.weight, 1e-4, 1e-5)
    both(ours, theirs, rng.normal(size=(2, shape[0])).astype(np.float32))


def test_layers():
    for make, shape in ((lambda nn: nn.SyncBatchNorm(3).eval(), (2, 3, 4, 4)),):
        ours, theirs = pair(make)
        x = td.tensor(np.abs(rng.normal(size=shape)).astype(np.float32))
        a, b = x.requires_grad_(), torch.tensor(x.detach().numpy(), requires_grad=True)
        close(ours(a), theirs(b))
        ours(a).square().sum().backward(), theirs(b).square().sum().backward()
        close(a.grad, b.grad, 1e-4, 1e-4)


def test_conv_tbc_and_linear_cross_entropy():
    x, w, b = (rng.normal(size=s).astype(np.float32) for s in ((6, 2, 3), (3, 3, 4), (4,)))
    for pad in (0, 1):
        close(
            td.nn.functional.conv_tbc(*map(td.tensor, (x, w, b)), pad),
            torch.conv_tbc(*map(torch.tensor, (x, w, b)), pad),
        )
    x, w, b, y = rng.normal(size=(5, 3)), rng.normal(size=(4, 3)), rng.normal(size=4), np.array([0, 3, 1, -100, 2])
    for kwargs in ({}, {"label_smoothing": 0.1}, {"reduction": "sum"}):
        a = td.nn.functional.linear_cross_entropy(*map(td.tensor, (x, w, y)), linear_bias=td.tensor(b), **kwargs)
        e = torch.nn.functional.linear_cross_entropy(
            *map(torch.tensor, (x, w, y)), linear_bias=torch.tensor(b), **kwargs
        )
        close(a, e)


@pytest.mark.parametrize("kv", ["same", "other", "bias"])
def test_multi_head_attention_forward(kv):
    e, heads, t, s, n = 8, 2, 3, 5, 2
    make = {k: rng.normal(size=v).astype(np.float32) for k, v in {
        "q": (t, n, e), "k": (s, n, e if kv != "other" else 6), "v": (s, n, e if kv != "other" else 7), "w": (3 * e, e),
        "b": (3 * e,), "ow": (e, e), "ob": (e,), "bk": (1, 1, e), "bv": (1, 1, e), "qw": (e, e), "kw": (e, 6), "vw": (e, 7),
    }.items()}  # fmt: skip
    masks = [None, np.triu(np.ones((t, s), bool), 2)], [None, np.array([[False] * 4 + [True], [False] * 5])]
    for attn in masks[0]:
        for padding in masks[1]:
            for weights in (True, False):
                found = []
                for package in (td, torch):
                    g = {k: package.tensor(v) for k, v in make.items()}
                    separate = kv == "other"
                    found.append(package.nn.functional.multi_head_attention_forward(
                        g["q"], g["k"], g["v"], e, heads, None if separate else g["w"], g["b"], g["bk"] if kv == "bias" else None,
                        g["bv"] if kv == "bias" else None, kv == "bias", 0.0, g["ow"], g["ob"], training=True,
                        key_padding_mask=None if padding is None else package.tensor(padding), need_weights=weights,
                        attn_mask=None if attn is None else package.tensor(attn), use_separate_proj_weight=separate,
                        **({"q_proj_weight": g["qw"], "k_proj_weight": g["kw"], "v_proj_weight": g["vw"]} if separate else {}),
                    ))  # fmt: skip
                close(found[0][0], found[1][0], 1e-4, 1e-4)
                assert (found[0][1] is None) == (found[1][1] is None)
                if weights:
                    close(found[0][1], found[1][1], 1e-4, 1e-5)
