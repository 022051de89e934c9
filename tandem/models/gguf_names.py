"""GGUF files of Llama-like models: sizes from their metadata, weights under the names of safetensors files."""

from __future__ import annotations

import re

from tandem.checkpoint.foreign.gguf import read_gguf
from tandem.errors import CheckpointError

_OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_INNER = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}  # fmt: skip


def settings_of_gguf(path) -> tuple[dict, dict]:
    """(settings of Llama, weights as stored) of a file."""
    state, metadata = read_gguf(path)
    kind = metadata.get("general.architecture")
    if kind not in ("llama", "mistral", "qwen2"):
        raise CheckpointError(
            "Llama", f"{path} holds a model of kind {kind!r}; 'llama', 'mistral' and 'qwen2' are alike"
        )

    def of(name: str, default=None):
        return metadata.get(f"{kind}.{name}", default)

    settings = {
        "vocabulary": state["token_embd.weight"].shape[0], "context": of("context_length"), "layers": of("block_count"),
        "heads": of("attention.head_count"), "kv_heads": of("attention.head_count_kv"), "width": of("embedding_length"),
        "hidden": of("feed_forward_length"), "head_width": of("attention.key_length"), "base": float(of("rope.freq_base", 10000.0)),
        "eps": of("attention.layer_norm_rms_epsilon", 1e-5), "tied": "output.weight" not in state,
        "bias": "blk.0.attn_q.bias" in state,
    }  # fmt: skip
    if kind == "qwen2":  # its queries and keys are stored as published
        state = _renamed(state)
    return settings, state


def weights_of_gguf(state: dict, attention) -> dict:
    """Names and order of safetensors files: GGUF has elements that turn together side by side."""
    made = _renamed(state)
    for name in made:
        if name.endswith((".q_proj.weight", ".k_proj.weight")):
            heads = attention.heads if ".q_proj" in name else attention.kv_heads
            w = made[name]
            made[name] = w.reshape(heads, w.shape[0] // heads // 2, 2, w.shape[1]).permute(0, 2, 1, 3).reshape(w.shape)
    return made


def _renamed(state: dict) -> dict:
    made = {}
    for name, value in state.items():
        found = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name)
        if found and found[2] in _INNER:
            made[f"model.layers.{found[1]}.{_INNER[found[2]]}.{found[3]}"] = value
        elif name.rpartition(".")[0] in _OUTER:
            made[f"{_OUTER[name.rpartition('.')[0]]}.weight"] = value
        elif not name.startswith("rope_freqs"):
            made[name] = value
    return made
