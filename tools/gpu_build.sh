#!/bin/sh
# Builds the extension for the python3 at hand, in place. Needs no CUDA. Usage: tools/gpu_build.sh
set -e
cd "$(dirname "$0")/.."
cmake -S . -B build/gpu-dev -G Ninja -DPython_EXECUTABLE="$(command -v python3)" -DCMAKE_BUILD_TYPE=Release > build-gpu.log 2>&1 ||
  { tail -40 build-gpu.log; exit 1; }
ninja -C build/gpu-dev >> build-gpu.log 2>&1 || { tail -60 build-gpu.log; exit 1; }
cp build/gpu-dev/_runtime*.so tandem/
rm -f build-gpu.log
