"""Exported C on other processors: cross compilers and emulators, from Debian's packages."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import tandem as td
from tests.export.c99.programs import Small
from tests.export.c_programs import check

pytestmark = pytest.mark.slow

# compiler, emulator: packages gcc-arm-linux-gnueabihf, gcc-aarch64-linux-gnu, gcc-riscv64-linux-gnu (libc6-dev-*-cross), qemu-user
USER = {
    "arm": ("arm-linux-gnueabihf-gcc", "qemu-arm"),
    "aarch64": ("aarch64-linux-gnu-gcc", "qemu-aarch64"),
    "riscv64": ("riscv64-linux-gnu-gcc", "qemu-riscv64"),
}
BOARDS = {"cortex-m3": "mps2-an385", "cortex-m4": "mps2-an386", "cortex-m7": "mps2-an500"}

START = """\
#include <stdint.h>
extern uint32_t stack_end;
int main(int argc, char** argv);
void _init(void) {}
void _fini(void) {}
void initialise_monitor_handles(void);
void exit(int status);
void reset(void) {
  extern uint32_t data_load, data_start, data_end, bss_start, bss_end;
  for (uint32_t *to = &data_start, *from = &data_load; to < &data_end;) *to++ = *from++;
  for (uint32_t* at = &bss_start; at < &bss_end;) *at++ = 0;
#if defined(__ARM_FP)
  *(volatile uint32_t*)0xE000ED88u |= 0xFu << 20; /* floats are done by hardware */
#endif
  initialise_monitor_handles();
  exit(main(0, 0));
}
__attribute__((section(".vectors"), used)) const void* vectors[] = {&stack_end, (void*)reset};
"""
BOARD = """\
MEMORY { code (rx) : ORIGIN = 0, LENGTH = 4M   ram (rw) : ORIGIN = 0x20000000, LENGTH = 4M }
ENTRY(reset)
SECTIONS {
  .text : { KEEP(*(.vectors)) *(.text*) *(.rodata*) *(.ARM.exidx*) } > code
  data_load = LOADADDR(.data);
  .data : { data_start = .; *(.data*) . = ALIGN(4); data_end = .; } > ram AT > code
  .bss : { bss_start = .; *(.bss*) *(COMMON) . = ALIGN(4); bss_end = .; end = .; } > ram
  stack_end = ORIGIN(ram) + LENGTH(ram);
}
"""


def needs(*programs: str, folder: str | None = None):
    missing = [p for p in programs if shutil.which(p) is None]
    missing += [folder] if folder is not None and not Path(folder).exists() else []
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed")


@pytest.mark.parametrize("processor", USER)
def test_other_processors_compute_the_same(processor, tmp_path):
    compiler, emulator = USER[processor]
    needs(compiler, emulator)
    model, x = Small().eval(), td.randn(1, 2, 7, 6)
    check(
        model,
        x,
        tmp_path / "conv",
        others=(td.randn(1, 2, 7, 6),),
        compiler=compiler,
        flags=["-O2", "-static"],
        runner=[emulator],
    )
    gpt = td.models.GPT2(vocabulary=20, context=8, layers=1, heads=2, width=8).eval()
    tokens = td.tensor([[3, 1, 4, 1, 5]])
    check(
        gpt, tokens, tmp_path / "gpt", weights="binary", compiler=compiler, flags=["-O2", "-static"], runner=[emulator]
    )


@pytest.mark.parametrize("processor", BOARDS)
def test_a_microcontroller_runs_lenet(processor, tmp_path):
    needs("arm-none-eabi-gcc", "qemu-system-arm")
    made = td.export.c(td.models.LeNet().eval(), td.randn(1, 1, 28, 28), tmp_path)
    (tmp_path / "start.c").write_text(START)
    (tmp_path / "board.ld").write_text(BOARD)
    command = (
        f"arm-none-eabi-gcc -mcpu={processor} -mthumb -std=c99 -O2 --specs=rdimon.specs -nostartfiles -T board.ld "
        "start.c main.c model.c model_weights.c -lm -o program.elf"
    )
    done = subprocess.run(command.split(), cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    emulator = (
        f"qemu-system-arm -M {BOARDS[processor]} -cpu {processor} -nographic -monitor none -serial none "
        "-semihosting-config enable=on,target=native -kernel program.elf"
    )
    done = subprocess.run(emulator.split(), cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"arena: {made.arena_bytes} bytes" in done.stdout


WASI = """\
import { WASI } from "node:wasi";
import { readFile } from "node:fs/promises";
const wasi = new WASI({ version: "preview1", args: ["program"], preopens: { ".": "." } });
const module = await WebAssembly.compile(await readFile("program.wasm"));
const instance = await WebAssembly.instantiate(module, { wasi_snapshot_preview1: wasi.wasiImport });
process.exit(wasi.start(instance));
"""


def test_webassembly_runs_lenet(tmp_path):
    needs("clang", "wasm-ld", "node", folder="/usr/include/wasm32-wasi")
    td.export.c(td.models.LeNet().eval(), td.randn(1, 1, 28, 28), tmp_path)
    command = "clang --target=wasm32-wasi --sysroot=/usr -std=c99 -O2 -msimd128 main.c model.c model_weights.c -lm -o program.wasm"
    done = subprocess.run(command.split(), cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (tmp_path / "run.mjs").write_text(WASI)
    done = subprocess.run(
        ["node", "--no-warnings", "run.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0 and "largest relative error" in done.stdout, done.stdout + done.stderr
