"""Tokens per second of a language model with random weights: this library, transformers, llama.cpp, a process each, in turns.

python benchmarks/generate.py                      GPT-2 small, one prompt, float32
python benchmarks/generate.py --model llama        a Llama shape of 110 million parameters
python benchmarks/generate.py --bits 8             ours with integer arithmetic (8, 4) or bfloat16 (16); that of transformers stays
                                                   float32, that of llama.cpp has as many bits (Q8_0, Q4_0)
python benchmarks/generate.py --peers llama.cpp --peer-python P     who to compare with, and an interpreter that has them
python benchmarks/generate.py --cpu-time --threads 1     on a busy machine: tokens per second of processor time of one thread
python benchmarks/generate.py --model llama-1b --device cuda --bits 16 --batch 64
                                                   a Llama shape of 1.1 billion parameters on a device; transformers has as many
                                                   bits and a compiled step; printed as well: the speed at which weights are read,
                                                   of that at which memory is copied
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
LLAMA_1B = {
    "vocabulary": 32000,
    "context": 1024,
    "layers": 22,
    "heads": 32,
    "kv_heads": 4,
    "width": 2048,
    "hidden": 5632,
}
SHAPES = {"gpt2": GPT, "llama": LLAMA, "llama-1b": LLAMA_1B}


def tandem_speed(model: str, batch: int, count: int, bits: int, device: str, threads: int, clock) -> float:
    import tandem as td

    td.set_num_threads(threads)
    with td.device(device):
        made = (td.models.GPT2 if model == "gpt2" else td.models.Llama)(**SHAPES[model]).eval()
    if bits == 16:
        made = made.to(td.bfloat16)
    elif bits < 16:
        made = td.quantize(made, bits, 32 if bits == 4 else None, activations="dynamic")
    prompts = td.ones(batch, 16, dtype=td.int64)
    made.generate(prompts, count, temperature=0)
    speed = _speed(lambda: made.generate(prompts, count, temperature=0), batch * count, clock)
    if device != "cpu":
        _print_share(td, made, speed / batch)
    return speed


def _print_share(td, model, steps: float):
    """Of the speed at which the device copies: that at which so many steps a second read all weights but the rows of embeddings."""
    x = td.empty(2**29, dtype=td.uint8, device="cuda")
    y = td.empty_like(x)
    best = float("inf")
    for _ in range(10):
        td.cuda.synchronize()
        started = time.perf_counter()
        y.copy_(x)
        td.cuda.synchronize()
        best = min(best, time.perf_counter() - started)
    read = sum(p.nbytes for name, p in model.named_parameters() if "embed_tokens" not in name)
    print(f"share {steps * read / (2 * x.nbytes / best):.2f} of {2 * x.nbytes / best / 1e12:.2f} TB/s")


def transformers_speed(model: str, batch: int, count: int, bits: int, device: str, threads: int, clock) -> float:
    import torch
    import transformers

    torch.set_num_threads(threads)
    if model == "gpt2":
        made = transformers.GPT2LMHeadModel(transformers.GPT2Config()).eval()
    else:
        shape = SHAPES[model]
        made = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=shape["vocabulary"], hidden_size=shape["width"], intermediate_size=shape["hidden"],
            num_hidden_layers=shape["layers"], num_attention_heads=shape["heads"], num_key_value_heads=shape["kv_heads"],
            max_position_embeddings=shape["context"])).eval()  # fmt: skip
    prompts = torch.ones(batch, 16, dtype=torch.long, device=device)
    settings = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None, "attention_mask": torch.ones_like(prompts),
                "max_new_tokens": count, "min_new_tokens": count}  # fmt: skip
    if device != "cpu":
        made = made.to(device, torch.bfloat16 if bits == 16 else torch.float32)
        settings["cache_implementation"] = "static"  # with which the step is compiled
    made.generate(prompts, **settings)
    return _speed(lambda: made.generate(prompts, **settings), batch * count, clock)


def llama_cpp_speed(model: str, batch: int, count: int, bits: int, device: str, threads: int, clock) -> float:
    if batch != 1 or device != "cpu":
        raise ValueError("llama.cpp is measured with one prompt, on the CPU")
    return llama_cpp_models.speed(model, SHAPES[model], count, bits, threads, clock)


SPEEDS = {"tandem": tandem_speed, "transformers": transformers_speed, "llama.cpp": llama_cpp_speed}


def _speed(run, tokens: int, clock) -> float:
    run()  # once more: what is found out on the way takes its time in the first runs
    best = 0.0
    for _ in range(3):
        started = clock()
        run()
        best = max(best, tokens / (clock() - started))
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=list(SHAPES), default="gpt2")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bits", type=int, choices=[32, 16, 8, 4], default=32)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--peers", default="transformers", metavar="NAMES", help="transformers, llama.cpp; with commas")
    parser.add_argument("--peer-python", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cpu-time", action="store_true", help="processor time in place of time")
    parser.add_argument("--only", choices=list(SPEEDS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        clock = time.process_time if options.cpu_time else time.perf_counter
        settings = (options.model, options.batch, options.count, options.bits, options.device, options.threads, clock)
        print(SPEEDS[options.only](*settings))
        return
    best: dict[str, float] = {}
    peers = [peer for peer in options.peers.split(",") if peer]
    for _ in range(options.rounds):
        for only in ("tandem", *peers):
            python = sys.executable if only == "tandem" else options.peer_python
            done = subprocess.run([python, __file__, *sys.argv[1:], "--only", only], capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"{only}: {done.stderr}")
            *notes, speed = done.stdout.splitlines()
            best[only] = max(best.get(only, 0.0), float(speed))
            if only == "tandem":
                print(*notes, sep="\n", end="\n" if notes else "", flush=True)
    print(f"{options.model}, batch {options.batch}, {options.bits} bits, tokens/s: tandem {best['tandem']:.1f}")
    for peer in peers:
        bar = 0.9 if peer == "llama.cpp" and options.bits < 16 else BARS[peer]
        ratio = best["tandem"] / best[peer]
        print(f"  {peer} {best[peer]:.1f}: {ratio:.2f}x, bar {bar}{'' if ratio >= bar else '  missed'}")


if __name__ == "__main__":
    main()
