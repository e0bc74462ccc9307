"""docs/ir.md and the verifiers say the same, and every rule has a program that breaks it."""

import dataclasses
import functools
import pathlib
import re

import pytest

from argand.native.ir import loops as ir
from argand.native.ir.affine import Affine
from argand.native.ir.tensor import Graph, Output
from argand.native.ir.tensor_text import parse_graph
from argand.native.ir.verify_tensor import verify_graph
from argand.native.passes import levels
from argand.native.passes.table import PASSES, Setting, run_pass
from argand.native.schedule.demand import find_demand
from argand.native.verify_module import verify_module
from argand.native.verify_plan import verify_plan
from argand.runtime import launch
from argand.support.options import Options
from tests.cases.harness import FOLDER, read
from tests.cases.stages import PORTABLE

ROOT = pathlib.Path(__file__).parents[2]
DOCUMENTED = re.findall(
    r"^- \*\*([A-Z]\d+)\*\* ", (ROOT / "docs" / "ir.md").read_text(), flags=re.M
)
replace = dataclasses.replace

EXP = "graph(f32[8])\n%0 = input[0]() : f32[8]\n%1 = exp(%0) : f32[8]\nreturn %1"
SUM = "graph(f32[64,32])\n%0 = input[0]() : f32[64,32]\n%1 = exp(%0) : f32[64,32]\n%2 = sum[1](%1) : f32[64]\nreturn %2"
LOOKUP = (
    "graph(f32[9], i64[4])\n%0 = input[0]() : f32[9]\n%1 = input[1]() : i64[4]\n%2 = exp(%0) : f32[9]\n"
    "%3 = gather[#1](%2, %1) : f32[4]\nreturn %3"
)
REGION = (
    "graph(f32[10], f32[3])\n%0 = input[0]() : f32[10]\n%1 = input[1]() : f32[3]\n"
    "%2 = update[d0 + 2](%0, %1) : f32[10]\nreturn %2"
)
WRITE = (
    "graph(f32[64,32])\n%0 = input[0]() : f32[64,32]\n%1 = exp(%0) : f32[64,32]\n%2 = sum[0](%0) : f32[32]\n"
    "return %1 into 0, %2"
)
LONG = (
    "graph(f32[2,32768])\n%0 = input[0]() : f32[2,32768]\n%1 = sum[1](%0) : f32[2]\n%2 = view[d0](%1) : f32[2,1]\n"
    "%3 = sub(%0, %2) : f32[2,32768]\nreturn %3"
)
CALL = (
    "graph(f32[8])\n%0 = input[0]() : f32[8]\n%1 = exp(%0) : f32[8]\n%2 = sin(%0) : f32[8]\n"
    "%3 = extern[aten.dot.default](%1, %2) : torch[]\n%4 = item[0](%3) : f32[]\n%5 = add(%1, %4) : f32[8]\nreturn %5"
)
VIEW = (
    "graph(f32[4,8])\n%0 = input[0]() : f32[4,8]\n%1 = exp(%0) : f32[4,8]\n%2 = view[d1, d0](%1) : f32[8,4]\n"
    "return %1, %2 strides [1,8]"
)


@functools.cache
def forms(text):
    """Every form of a program, by the name of its level."""
    value, found = parse_graph(text), {}
    for row in PASSES:
        if row.gives is not levels.TENSOR:
            value = run_pass(row, value, Setting(Options(verify="forms"), PORTABLE))
            found[row.gives.name] = value
    return found


def demand(text, **changes):
    return levels.DEMAND.verify(replace(forms(text)["demand"], **changes))


def fusion(text, **changes):
    return levels.FUSION.verify(replace(forms(text)["fusion"], **changes))


def regrouped(text, change):
    """A fusion whose groups are changed one by one."""
    found = forms(text)["fusion"]
    new = {group: change(group) for group in found.groups}
    group_of = {node: new[group] for node, group in found.group_of.items()}
    return levels.FUSION.verify(replace(found, groups=tuple(new.values()), group_of=group_of))


def shifted(group):
    return replace(
        group, members={n: tuple(f.shift(1) for f in at) for n, at in group.members.items()}
    )


def merged(text, ops):
    """A fusion in which the groups of some ops are one, over the loops of the last."""
    found = forms(text)["fusion"]
    chosen = [g for g in found.groups if any(n.op in ops for n in g.members)]
    # Loops of their own for each member: only the rule that is meant may be broken.
    whole = replace(
        chosen[-1],
        members={n: at for g in chosen for n, at in g.members.items()},
        variables=frozenset().union(*(g.variables for g in chosen)),
        outer=frozenset(),
    )
    groups = tuple(whole if g is chosen[-1] else g for g in found.groups if g not in chosen[:-1])
    group_of = {n: whole if g in chosen else g for n, g in found.group_of.items()}
    return levels.FUSION.verify(replace(found, groups=groups, group_of=group_of))


def storage(text, **changes):
    return levels.STORAGE.verify(replace(forms(text)["storage"], **changes))


def schedule(text, change):
    found = forms(text)["schedule"]
    return levels.SCHEDULE.verify(replace(found, order=change(found.order)))


def nests(text, change):
    found = forms(text)["loops"]
    return levels.LOOPS.verify(replace(found, work=tuple(map(change, found.work))))


def beyond(nest):
    """Every store one element further."""

    def moved(block):
        return tuple(
            replace(s, body=moved(s.body))
            if isinstance(s, ir.Loop)
            else replace(s, index=s.index.shift(1))
            if isinstance(s, ir.Store)
            else s
            for s in block
        )

    return replace(nest, kernel=replace(nest.kernel, body=moved(nest.kernel.body)))


def module(program, /, **changes):
    return verify_module(replace(forms(program)["module"], **changes))


def plan(text, **changes):
    return verify_plan(replace(forms(text)["plan"].plan, **changes))


def buffers(text, change):
    return plan(text, buffers=tuple(map(change, forms(text)["plan"].plan.buffers)))


def slots(text, **changes):
    return buffers(text, lambda b: replace(b, **changes) if isinstance(b, launch.Slot) else b)


def unordered():
    graph = parse_graph(EXP)
    return verify_graph(Graph(graph.inputs, graph.outputs, (), {}, graph.nodes[::-1]))


def promised():
    graph = parse_graph(EXP)
    (output,) = graph.outputs
    other = Output(output.node, replace(output.spec, shape=(9,)))
    return verify_graph(replace(graph, outputs=(other,)))


def effects_in_any_order():
    text = (
        "graph(f32[8])\n%0 = input[0]() : f32[8]\n%1 = extern[aten.dot.default](%0, %0) : torch[]\n%2 = exp(%0) : f32[8]\n"
        "%3 = extern[aten.dot.default](%2, %2) : torch[]\n%4 = item[0](%1) : f32[]\n%5 = item[0](%3) : f32[]\nreturn %4, %5"
    )
    graph = parse_graph(text)
    calls = tuple(node for node in graph.nodes if node.op == "extern")
    found = find_demand(replace(graph, effects=calls))
    assert levels.DEMAND.verify(found) is None
    return levels.DEMAND.verify(replace(found, after={}))


def freed_too_early():
    found = forms(EXP)["plan"].plan
    return verify_plan(replace(found, steps=(launch.Free((0,)), *found.steps)))


def in_the_arena():
    found = forms(EXP)["plan"].plan
    slot = launch.Slot(0, (8,), (1,), found.buffers[0].dtype)
    return verify_plan(replace(found, buffers=(slot,), arena_bytes=64))


BREAKS = {
    "T2": unordered,
    "T9": promised,
    "D1": lambda: demand(EXP, nodes=forms(EXP)["demand"].nodes[::-1]),
    "D2": lambda: demand(EXP, layouts=dict.fromkeys(forms(EXP)["demand"].nodes, (1, 1))),
    "D3": lambda: demand(LOOKUP, required=frozenset()),
    "D4": lambda: demand(
        REGION,
        destinations={
            n: r._replace(forms=(Affine.of(0).shift(8),))
            for n, r in forms(REGION)["demand"].destinations.items()
        },
    ),
    "D5": lambda: demand(WRITE, outputs=forms(WRITE)["demand"].outputs[::-1]),
    "D6": effects_in_any_order,
    "F1": lambda: fusion(EXP, group_of={}),
    "F2": lambda: regrouped(EXP, shifted),
    "F3": lambda: regrouped(SUM, lambda group: replace(group, outer=None)),
    "F4": lambda: merged(LOOKUP, ("exp", "gather")),
    "F5": lambda: merged(CALL, ("exp", "add")),
    "M1": lambda: storage(EXP, in_memory=frozenset()),
    "M2": lambda: storage(
        LONG, in_memory=frozenset(n for n in forms(LONG)["storage"].in_memory if n.op != "sum")
    ),
    "S1": lambda: schedule(EXP, lambda order: order[:-1]),
    "S2": lambda: schedule(LOOKUP, lambda order: order[::-1]),
    "S3": lambda: schedule(WRITE, lambda order: order[::-1]),
    "N1": lambda: nests(EXP, lambda nest: replace(nest, owners=nest.owners[:1])),
    "N2": lambda: nests(EXP, beyond),
    "K1": lambda: module(EXP, functions=("kernel0", "kernel7")),
    "K2": lambda: module(EXP, text=forms(EXP)["module"].text.replace("declare", ";")),
    "P1": lambda: plan(EXP, returns=(9,)),
    "P2": lambda: buffers(
        VIEW, lambda b: replace(b, offset=1) if isinstance(b, launch.View) else b
    ),
    "P3": freed_too_early,
    "P4": lambda: plan(CALL, arena_bytes=64),
    "P5": lambda: slots(CALL, offset=0),
    "P6": in_the_arena,
}
BROKEN_BY_TEXT = {case.expected.split()[0] for case in read(FOLDER / "verify.txt").cases} - {
    "right"
}


def test_every_rule_that_is_cited_is_documented():
    sources = [path.read_text() for path in (ROOT / "src" / "argand" / "native").rglob("*.py")]
    cited = {rule for text in sources for rule in re.findall(r'Fault\(\s*"([A-Z]\d+)"', text)}
    assert cited == set(DOCUMENTED) and len(DOCUMENTED) == len(set(DOCUMENTED))


def test_every_documented_rule_is_broken_by_a_test():
    assert set(DOCUMENTED) == set(BREAKS) | BROKEN_BY_TEXT


@pytest.mark.parametrize("rule", BREAKS)
def test_a_broken_rule_is_named(rule):
    fault = BREAKS[rule]()
    assert fault is not None and fault.rule == rule, fault


def test_every_level_prints():
    for text in (EXP, SUM, LOOKUP, REGION, WRITE, LONG, CALL, VIEW):
        for level in levels.LEVELS[1:]:
            assert isinstance(forms(text)[level.name], level.kind) and level.show(
                forms(text)[level.name]
            )
