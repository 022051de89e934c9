"""Language models with random weights for llama.cpp: GGUF files of the shapes that generate.py has, and their speed.

Needs the packages gguf and llama-cpp-python. Weights are float32, bfloat16 (16), Q8_0 (8) or Q4_0 (4).
"""

from __future__ import annotations

import ctypes
import tempfile
import time
from pathlib import Path

import numpy as np


def _shapes(model: str, shape: dict) -> dict[str, tuple[int, ...]]:
    width, vocabulary = shape["width"], shape["vocabulary"]
    made = {"token_embd.weight": (vocabulary, width), "output_norm.weight": (width,)}
    if model == "gpt2":
        made |= {"position_embd.weight": (shape["context"], width), "output_norm.bias": (width,)}
    else:
        made["output.weight"] = (vocabulary, width)
    for i in range(shape["layers"]):
        block = f"blk.{i}."
        if model == "gpt2":
            hidden = 4 * width
            products = {"attn_qkv": (3 * width, width), "attn_output": (width, width), "ffn_up": (hidden, width),
                        "ffn_down": (width, hidden)}  # fmt: skip
            for name, (out, into) in products.items():
                made |= {f"{block}{name}.weight": (out, into), f"{block}{name}.bias": (out,)}
            for name in ("attn_norm", "ffn_norm"):
                made |= {f"{block}{name}.weight": (width,), f"{block}{name}.bias": (width,)}
        else:
            keys, hidden = width // shape["heads"] * shape["kv_heads"], shape["hidden"]
            products = {"attn_q": (width, width), "attn_k": (keys, width), "attn_v": (keys, width),
                        "attn_output": (width, width), "ffn_gate": (hidden, width), "ffn_up": (hidden, width),
                        "ffn_down": (width, hidden), "attn_norm": (width,), "ffn_norm": (width,)}  # fmt: skip
            made |= {f"{block}{name}.weight": size for name, size in products.items()}
    return made


def write(path: str, model: str, shape: dict, bits: int):
    """A file with random weights; vectors and positions are float32 in all of them."""
    import gguf

    kinds = gguf.GGMLQuantizationType
    kind = {32: kinds.F32, 16: kinds.BF16, 8: kinds.Q8_0, 4: kinds.Q4_0}[bits]
    writer = gguf.GGUFWriter(path, model)
    writer.add_context_length(shape["context"])
    writer.add_embedding_length(shape["width"])
    writer.add_block_count(shape["layers"])
    writer.add_head_count(shape["heads"])
    writer.add_feed_forward_length(shape.get("hidden", 4 * shape["width"]))
    writer.add_vocab_size(shape["vocabulary"])
    writer.add_tokenizer_model("no_vocab")
    if model == "gpt2":
        writer.add_layer_norm_eps(1e-5)
    else:
        writer.add_head_count_kv(shape["kv_heads"])
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_rope_dimension_count(shape["width"] // shape["heads"])
    rng = np.random.default_rng(0)
    for name, size in _shapes(model, shape).items():
        weights = (rng.standard_normal(size) * 0.02).astype(np.float32)
        if len(size) == 2 and name != "position_embd.weight" and bits < 32:
            writer.add_tensor(name, gguf.quants.quantize(weights, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def speed(model: str, shape: dict, count: int, bits: int, threads: int = 2, clock=time.perf_counter) -> float:
    """Tokens a second after a prompt of 16; the largest logit is taken, as with temperature 0."""
    import llama_cpp as cpp

    silent = cpp.llama_log_callback(lambda level, text, data: None)
    cpp.llama_log_set(silent, ctypes.c_void_p(0))
    cpp.llama_backend_init()
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.gguf")
        write(path, model, shape, bits)
        loaded = cpp.llama_model_load_from_file(path.encode(), cpp.llama_model_default_params())
        settings = cpp.llama_context_default_params()
        settings.n_ctx, settings.n_threads, settings.n_threads_batch = 256, threads, threads
        context = cpp.llama_init_from_model(loaded, settings)

        def decode(tokens: list[int]) -> int:
            given = (cpp.llama_token * len(tokens))(*tokens)
            if cpp.llama_decode(context, cpp.llama_batch_get_one(given, len(tokens))) != 0:
                raise RuntimeError("llama.cpp did not decode")
            logits = cpp.llama_get_logits_ith(context, -1)
            return int(np.ctypeslib.as_array(logits, (shape["vocabulary"],)).argmax())

        best = 0.0
        for _ in range(4):  # the first one warms up
            cpp.llama_memory_clear(cpp.llama_get_memory(context), True)
            started = clock()
            token = decode([1] * 16)
            for _ in range(count - 1):
                token = decode([token])
            best = max(best, count / (clock() - started))
        return best
