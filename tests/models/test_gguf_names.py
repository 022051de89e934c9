"""Names of weights in GGUF files."""

import numpy as np

import tandem as td
from tandem.models.gguf_names import weights_of_gguf
from tests.models.llamas import CONFIG


def test_weights_by_the_names_of_gguf_files_are_the_same_model():
    model, other = (td.models.Llama.from_config(CONFIG, tied=False, head_width=4).eval() for _ in range(2))
    names = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "model.layers.0.": "blk.0.",
             "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
             "self_attn.o_proj": "attn_output", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
             "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}  # fmt: skip
    stored = {}
    for name, value in model.state_dict().items():
        value = value.detach()
        if "q_proj" in name or "k_proj" in name:  # elements that turn together lie side by side there
            heads = 2 if "q_proj" in name else 1
            value = value.reshape(heads, 2, 2, 8).permute(0, 2, 1, 3).reshape(value.shape)
        for ours, theirs in names.items():
            name = name.replace(ours, theirs)
        stored[name] = value
    other.load_published({**stored, "rope_freqs.weight": td.ones(2)})
    tokens = td.arange(6)[None]
    np.testing.assert_array_equal(model(tokens).detach().numpy(), other(tokens).detach().numpy())
    assert "model.layers.0.mlp.up_proj.weight" in weights_of_gguf(stored, model.model["layers"][0].self_attn)
