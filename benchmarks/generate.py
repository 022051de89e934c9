"""Tokens per second of a language model with random weights: this library, transformers, llama.cpp, a process each, in turns.

python benchmarks/generate.py                      GPT-2 small, one prompt, float32
python benchmarks/generate.py --model llama        a Llama shape of 110 million parameters
python benchmarks/generate.py --bits 8             ours with integer arithmetic (8, 4) or bfloat16 (16); that of transformers stays
                                                   float32, that of llama.cpp has as many bits (Q8_0, Q4_0)
python benchmarks/generate.py --peers llama.cpp --peer-python P     who to compare with, and an interpreter that has them
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

import llama_cpp_models

BARS = {"transformers": 1.5, "llama.cpp": 0.95}  # of llama.cpp at 8 and 4 bits: 0.9
GPT = {"vocabulary": 50257, "context": 1024, "layers": 12, "heads": 12, "width": 768}
LLAMA = {"vocabulary": 32000, "context": 1024, "layers": 12, "heads": 12, "kv_heads": 4, "width": 768, "hidden": 2048}


def tandem_speed(model: str, batch: int, count: int, bits: int) -> float:
    import tandem as td

    made = (td.models.GPT2(**GPT) if model == "gpt2" else td.models.Llama(**LLAMA)).eval()
    if bits == 16:
        made = made.to(td.bfloat16)
    elif bits < 16:
        made = td.quantize(made, bits, 32 if bits == 4 else None, activations="dynamic")
    prompts = td.ones(batch, 16, dtype=td.int64)
    made.generate(prompts, count, temperature=0)
    return _speed(lambda: made.generate(prompts, count, temperature=0), batch * count)


def transformers_speed(model: str, batch: int, count: int, bits: int) -> float:
    import torch
    import transformers

    torch.set_num_threads(2)
    if model == "gpt2":
        made = transformers.GPT2LMHeadModel(transformers.GPT2Config()).eval()
    else:
        made = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=32000, hidden_size=768, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=12,
            num_key_value_heads=4, max_position_embeddings=1024)).eval()  # fmt: skip
    prompts = torch.ones(batch, 16, dtype=torch.long)
    settings = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None, "attention_mask": torch.ones_like(prompts),
                "max_new_tokens": count, "min_new_tokens": count}  # fmt: skip
    made.generate(prompts, **settings)
    return _speed(lambda: made.generate(prompts, **settings), batch * count)


def llama_cpp_speed(model: str, batch: int, count: int, bits: int) -> float:
    if batch != 1:
        raise ValueError("llama.cpp is measured with one prompt")
    return llama_cpp_models.speed(model, GPT if model == "gpt2" else LLAMA, count, bits)


SPEEDS = {"tandem": tandem_speed, "transformers": transformers_speed, "llama.cpp": llama_cpp_speed}


def _speed(run, tokens: int) -> float:
    started = time.perf_counter()
    run()
    return tokens / (time.perf_counter() - started)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=["gpt2", "llama"], default="gpt2")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bits", type=int, choices=[32, 16, 8, 4], default=32)
    parser.add_argument("--peers", default="transformers", metavar="NAMES", help="transformers, llama.cpp; with commas")
    parser.add_argument("--peer-python", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--only", choices=list(SPEEDS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(SPEEDS[options.only](options.model, options.batch, options.count, options.bits))
        return
    best: dict[str, float] = {}
    for _ in range(options.rounds):
        for only in ("tandem", *options.peers.split(",")):
            python = sys.executable if only == "tandem" else options.peer_python
            done = subprocess.run([python, __file__, *sys.argv[1:], "--only", only], capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"{only}: {done.stderr}")
            best[only] = max(best.get(only, 0.0), float(done.stdout.split()[-1]))
    print(f"{options.model}, batch {options.batch}, {options.bits} bits, tokens/s: tandem {best['tandem']:.1f}")
    for peer in options.peers.split(","):
        bar = 0.9 if peer == "llama.cpp" and options.bits < 16 else BARS[peer]
        ratio = best["tandem"] / best[peer]
        print(f"  {peer} {best[peer]:.1f}: {ratio:.2f}x, bar {bar}{'' if ratio >= bar else '  missed'}")


if __name__ == "__main__":
    main()
