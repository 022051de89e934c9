"""Tokens of Llama and GPT-2 are those of transformers, with the same weights."""

from __future__ import annotations

import numpy as np
import pytest

import tandem as td

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.oracle


def pair(kind: str):
    torch.manual_seed(0)
    if kind == "gpt2":
        config = transformers.GPT2Config(vocab_size=97, n_positions=64, n_embd=32, n_layer=2, n_head=4)
        theirs = transformers.GPT2LMHeadModel(config).eval()
        ours = td.models.GPT2(97, 64, 2, 4, 32).eval()
    else:
        scaling = {"rope_type": "default", "rope_theta": 10000.0}
        if kind == "llama3":
            scaling = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                       "original_max_position_embeddings": 32}  # fmt: skip
        config = transformers.LlamaConfig(
            vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=64, rope_parameters=scaling, tie_word_embeddings=kind == "tied",
        )  # fmt: skip
        theirs = transformers.LlamaForCausalLM(config).eval()
        ours = td.models.Llama.from_config(config.to_dict()).eval()
    for p in theirs.parameters():
        if p.ndim == 2:
            p.data.normal_(0, 0.3)
    ours.load_published({k: td.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    return theirs, ours


@pytest.mark.parametrize("kind", ["llama", "llama3", "tied", "gpt2"])
def test_tokens_are_those_of_transformers(kind):
    theirs, ours = pair(kind)
    tokens = np.random.default_rng(0).integers(1, 97, (2, 7))
    x, mask = torch.from_numpy(tokens), torch.ones(2, 7, dtype=torch.long)
    with torch.no_grad():
        np.testing.assert_allclose(
            theirs(x).logits.numpy(), ours(td.tensor(tokens)).detach().numpy(), rtol=1e-3, atol=1e-4
        )
    common = {"attention_mask": mask, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    for beams in (1, 3):
        expected = theirs.generate(x, max_new_tokens=20, num_beams=beams, **common).numpy()
        got = ours.generate(td.tensor(tokens), 20, temperature=0, beams=beams).numpy()
        np.testing.assert_array_equal(got, expected)
