"""The stages that have text cases: each a function from a case to the text of what the stage makes."""

import torch
import torch.nn.functional as F

from argand.native.codegen.target import Target
from argand.native.codegen.triton.source import Refused
from argand.native.ir.loops_text import parse_kernel, print_kernel
from argand.native.ir.tensor_text import parse_graph, print_graph
from argand.native.ir.verify_loops import verify_kernel
from argand.native.ir.verify_tensor import verify_graph
from argand.native.lower.importer import import_graph
from argand.native.passes import levels
from argand.native.passes.table import PASSES, Setting, run_pass, run_passes
from argand.native.target import GPUS
from argand.support.errors import InternalError
from argand.support.options import Options
from tests.cases import python
from tests.cases.aten import parse_aten, print_aten, split_inputs
from tests.native.tracing import aten_graph

PORTABLE = Target("x86-64", "", 16)  # the same text on every machine
TARGETS = {"portable": PORTABLE, "avx2": Target("haswell", "+avx2,+fma", 32)}
BY_NAME = {row.name: row for row in PASSES}


def setting_of(case):
    """Options of the compiler, as far as a case gives them."""
    fusion = case.options.get("fusion", "on") == "on"
    most = int(case.options.get("max_fusion", 64))
    target = TARGETS[case.options.get("target", "portable")]
    return Setting(Options(verify="forms", cache=False, fusion=fusion, max_fusion=most), target)


def traced(case):
    """The aten graph of a case's program, composite ops taken apart, and its inputs by name."""
    inputs, lines = split_inputs(case.body)
    scope = {"torch": torch, "F": F}
    source = "\n".join([f"def f({', '.join(inputs)}):", *(f"    {line}" for line in lines)])
    exec(source, scope)

    def flat(*args):
        return tuple(torch.utils._pytree.tree_leaves(scope["f"](*args)))

    module = aten_graph(flat, *inputs.values())
    module.graph.eliminate_dead_code()
    return module, inputs


def triton(case):
    """Torch functions as Triton source for cuda:90."""
    module, inputs = traced(case)
    options = Options(verify=True, cache=False)
    graph = import_graph(module, list(inputs.values()), options, packs=False)
    try:
        text = run_passes(graph, Setting(options, GPUS["cuda:90"])).module.text
    except InternalError as error:
        assert isinstance(error.__cause__, Refused)
        return f"refused: {error.__cause__}"
    return text.strip()


def decompose(case):
    """Torch functions as aten ops, composite ones taken apart."""
    module, inputs = traced(case)
    for name, node in zip(inputs, module.graph.find_nodes(op="placeholder"), strict=True):
        node._rename(name)
    return print_aten(module.graph)


def lower(case):
    """An aten graph as tensor IR."""
    module, inputs = parse_aten(case.body)
    graph = import_graph(module, inputs, setting_of(case).options)
    assert verify_graph(graph) is None
    return print_graph(graph)


def one_pass(case):
    """Tensor IR after one pass over it."""
    graph = parse_graph(case.body)
    assert verify_graph(graph) is None
    return print_graph(run_pass(BY_NAME[case.options["pass"]], graph, setting_of(case)))


def up_to(level):
    """Tensor IR as one of the forms behind the scheduler; the passes over tensor IR do not run."""

    def run(case):
        graph = parse_graph(case.body)
        assert verify_graph(graph) is None, verify_graph(graph)
        value, setting = graph, setting_of(case)
        for row in PASSES:
            if row.gives is levels.TENSOR:
                continue
            value = run_pass(row, value, setting)
            later = PASSES[PASSES.index(row) + 1 :]
            if row.gives is level and not any(other.gives is level for other in later):
                break
        return level.show(value)

    return run


def verify(case):
    """The rule that a text breaks."""
    if case.body.startswith(("kernel", "contraction")):
        kernel = parse_kernel(case.body)
        fault = verify_kernel(kernel)
        assert print_kernel(kernel) == case.body
    else:
        fault = verify_graph(parse_graph(case.body))
    return "right" if fault is None else f"{fault.rule} {fault.what}"


STAGES = {
    "decompose": decompose,
    "lower": lower,
    "pass": one_pass,
    "demand": up_to(levels.DEMAND),
    "fusion": up_to(levels.FUSION),
    "storage": up_to(levels.STORAGE),
    "loops": up_to(levels.LOOPS),
    "llvm": up_to(levels.MODULE),
    "triton": triton,
    "plan": up_to(levels.PLAN),
    "verify": verify,
    "capture": python.capture,
    "joint": python.joint,
    "partition": python.partition,
}
