#!/bin/sh
# Checks collectives of CUDA tensors, with ranks that share the device; prints a line for each check.
# Usage: tools/gpu_nccl.sh FOLDER [checks...]    FOLDER has libnccl.so.2 of NCCL 2.31 or later, or libnccl.so.2.xz
# (tools/slim_cuda_library.py makes small ones)
set -e
cd "$(dirname "$0")/.."
folder=$(cd "$1" && pwd)
shift
[ -e "$folder/libnccl.so.2" ] || python3 -c "
import lzma, shutil, sys
with lzma.open(sys.argv[1] + '/libnccl.so.2.xz') as packed, open(sys.argv[1] + '/libnccl.so.2', 'wb') as to:
    shutil.copyfileobj(packed, to)" "$folder"
ls tandem/_runtime*.so > /dev/null 2>&1 || tools/gpu_build.sh
# Every rank says what it begins, and where it is after a minute; NCCL says what it does not like.
export TANDEM_NCCL_PROGRESS=1 NCCL_DEBUG="${NCCL_DEBUG:-WARN}"
PYTHONPATH=. PYTHONUNBUFFERED=1 TANDEM_CUDA_PATH="$folder" exec timeout 280 python3 -m tests.gpu.nccl_checks "$@"
