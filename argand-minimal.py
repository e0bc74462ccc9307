"""compiled code gives other results than eager: the lowering or the machine code of cat aten.cat.default. Made by argand bisect."""

import os

os.environ["ARGAND_OPTIONS"] = "verify=results,strict=1"

import torch
import argand

@argand.compile
def program(x):
    y = torch.cat([x, x.sin(), x], 0)
    return y * 2
for rows in (1, 1, 1, 2):
    program(torch.randn(rows, 1))
