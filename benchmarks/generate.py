"""Tokens per second of a language model with random weights: this library and transformers, a process each, in turns.

python benchmarks/generate.py                      GPT-2 small, one prompt, float32
python benchmarks/generate.py --model llama        a Llama shape of 110 million parameters
python benchmarks/generate.py --bits 8             ours with integer arithmetic (8, 4) or bfloat16 (16); theirs stays float32
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

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
    parser.add_argument("--only", choices=["tandem", "transformers"])
    options = parser.parse_args()
    if options.only:
        speed = {"tandem": tandem_speed, "transformers": transformers_speed}[options.only]
        print(speed(options.model, options.batch, options.count, options.bits))
        return
    best: dict[str, float] = {}
    for _ in range(options.rounds):
        for only in ("tandem", "transformers"):
            command = [sys.executable, __file__, *sys.argv[1:], "--only", only]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            best[only] = max(best.get(only, 0.0), float(done.stdout.split()[-1]))
    ratio = best["tandem"] / best["transformers"]
    print(
        f"{options.model}, batch {options.batch}, {options.bits} bits: tokens/s "
        + ", ".join(f"{k} {v:.1f}" for k, v in best.items())
        + f"; {ratio:.2f}x"
    )


if __name__ == "__main__":
    main()
