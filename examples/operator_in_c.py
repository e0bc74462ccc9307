"""An operator of your own with a kernel in C: the running maximum of each row.

Eager torch calls the Python function; compiled graphs call the C function on pointers, without Python, and what is around it is
fused as ever. The shared library is built here with the C compiler of the machine; yours may come from anywhere.
"""

import ctypes
import os
import pathlib
import subprocess
import tempfile

import torch
from torch import Tensor

import argand

SOURCE = """
#include <stdint.h>

/* buffers: x, result. sizes: rows and columns of x, then of the result. Computes elements begin to end of the result. */
void running_maximum(void **buffers, const int64_t *sizes, int64_t begin, int64_t end) {
    const float *x = buffers[0];
    float *result = buffers[1];
    int64_t columns = sizes[1];
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i - i % columns;
        if (i == begin || i == row) {
            result[i] = x[row];
            for (int64_t j = row; j <= i; j++) result[i] = x[j] > result[i] ? x[j] : result[i];
        } else {
            result[i] = x[i] > result[i - 1] ? x[i] : result[i - 1];
        }
    }
}
"""


def build() -> ctypes.CDLL:
    """The shared library."""
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "kernel.c").write_text(SOURCE)
    compiler = os.environ.get("CC", "cc")
    command = [compiler, "-O2", "-shared", "-fPIC", "kernel.c", "-o", "kernel.so"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "kernel.so"))


@argand.custom_op("examples::running_maximum", version="1")
def running_maximum(x: Tensor) -> Tensor:
    """What eager runs."""
    return x.cummax(-1).values


@running_maximum.impl_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def main() -> None:
    """Register the C kernel, and use the operator between others."""
    library = build()
    running_maximum.impl_c(library.running_maximum, dtypes=torch.float32, grain=4096)
    compiled = argand.compile(lambda x: running_maximum(x * 2).relu() + 1, fullgraph=True)
    x = torch.randn(64, 1000)
    expected = (x * 2).cummax(-1).values.relu() + 1
    torch.testing.assert_close(compiled(x), expected)
    print(argand.opcheck(running_maximum, (torch.randn(3, 4),)))


if __name__ == "__main__":
    main()
