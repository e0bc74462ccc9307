"""Statements of generated programs: one function per construct, one row each with its weight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .expressions import Scope
from .syntax import Statement, compound, simple

if TYPE_CHECKING:
    from .program_generator import Generator


def assign(g: Generator, scope: Scope) -> Statement:
    kind = g.pick(
        "tensor", "tensor", "tensor", "int", "float", "bool", "str", "list", "dict", "set"
    )
    value = g.expression(scope, kind, 3)
    name = g.target(scope, kind)
    g.bind(scope, kind, name)
    return simple(f"{name} = {value}")


def unpack(g: Generator, scope: Scope) -> Statement:
    first, second = g.fresh("int"), g.fresh("list")
    value = g.expression(scope, "int"), g.expression(scope, "list")
    g.bind(scope, "int", first)
    g.bind(scope, "list", second)
    form = g.random.randrange(3)
    if form == 0:
        return simple(f"{first}, {second} = {value[0]}, {value[1]}")
    if form == 1:
        return simple(f"{first}, *{second} = [{value[0]}, *{value[1]}]")
    third = g.fresh("int")
    g.bind(scope, "int", third)
    return simple(f"({first}, {third}), *{second} = ({value[0]}, 5), *{value[1]}")


def augment(g: Generator, scope: Scope) -> Statement:
    kind = g.pick("tensor", "int", "list", "float")
    names = [name for name in scope.names[kind] if name in scope.own]
    if not names:
        return simple(f"box.value += {g.expression(scope, 'int')}")
    name = g.random.choice(names)
    if kind == "list":
        return simple(f"{name} += {g.expression(scope, 'list')}[:2]")
    operator = g.pick("+=", "-=", "*=")
    value = g.expression(scope, kind)
    tail = f"\n{name} %= 97" if kind == "int" else ""
    return simple(f"{name} {operator} {value}{tail}")


def inplace(g: Generator, scope: Scope) -> Statement:
    name = g.variable(scope, "tensor")
    value = g.expression(scope, "float")
    return simple(
        g.pick(
            f"{name}.add_({value})",
            f"{name}.mul_({value})",
            f"{name}.zero_()",
            f"{name}[..., 0] = {value}",
            f"{name}.view(-1)[:1].add_(1.0)",
            f"{name}.detach().clamp_(-50.0, 50.0)",
            f"torch.add({name}, 1.0, out={name}.detach())",
        )
    )


def view_then_write(g: Generator, scope: Scope) -> Statement:
    base, name = g.variable(scope, "tensor"), g.fresh("tensor")
    make = g.pick("view(-1)", "unsqueeze(0)", "detach()", "reshape(-1)[:2]", "t()")
    g.bind(scope, "tensor", name)
    write = g.pick(f"{name}.mul_(2.0)", f"{base}.add_(1.0)", f"{name}[0] = -1.0")
    return simple(f"{name} = {base}.{make}\n{write}")


def if_plain(g: Generator, scope: Scope) -> Statement:
    clauses = [(f"if {g.expression(scope, 'bool')}:", g.small(scope.inner()))]
    if g.random.random() < 0.3:
        clauses.append((f"elif {g.expression(scope, 'bool')}:", g.small(scope.inner())))
    if g.random.random() < 0.5:
        clauses.append(("else:", g.small(scope.inner())))
    return compound(*clauses)


def if_tensor(g: Generator, scope: Scope) -> Statement:
    test = (
        f"{g.expression(scope, 'tensor')}.sum() {g.pick('>', '<')} {g.expression(scope, 'float')}"
    )
    form = g.pick("if {}:", "if not {}:", "if ({}) and flag:", "if flag or ({}):")
    clauses = [(form.format(test), g.small(scope.inner()))]
    if g.random.random() < 0.5:
        clauses.append(("else:", g.small(scope.inner())))
    return compound(*clauses)


def if_walrus(g: Generator, scope: Scope) -> Statement:
    name = g.fresh("int")
    value = g.expression(scope, "int")
    g.bind(scope, "int", name)
    return compound((f"if ({name} := {value}) > 2:", g.small(scope.inner())))


def match_value(g: Generator, scope: Scope) -> Statement:
    subject = g.expression(scope, g.pick("int", "list"))
    inner = scope.inner()
    name, rest = g.fresh("int"), g.fresh("list")
    starred = inner.inner()
    g.bind(starred, "int", name)
    g.bind(starred, "list", rest)
    cases = compound(
        ("case 0 | 1:", g.small(inner.inner())),
        (f"case [{name}, *{rest}]:", g.small(starred)),
        ("case _:", g.small(inner.inner())),
    )
    return compound((f"match {subject}:", (cases,)))


def _loop(g: Generator, scope: Scope, kind: str, name: str) -> tuple[Statement, ...]:
    inner = scope.inner(loop=True)
    g.bind(inner, kind, name)
    return g.small(inner)


def _with_else(g: Generator, scope: Scope, head: str, body: tuple[Statement, ...]) -> Statement:
    if g.random.random() < 0.2:
        g.made["loop else"] += 1
        return compound((head, body), ("else:", g.small(scope.inner(loop=False))))
    return compound((head, body))


def for_range(g: Generator, scope: Scope) -> Statement:
    name = g.fresh("int")
    head = f"for {name} in range({g.random.randrange(4)}):"
    return _with_else(g, scope, head, _loop(g, scope, "int", name))


def for_list(g: Generator, scope: Scope) -> Statement:
    name = g.fresh("int")
    head = f"for {name} in list({g.expression(scope, 'list')})[:3]:"
    return _with_else(g, scope, head, _loop(g, scope, "int", name))


def for_pairs(g: Generator, scope: Scope) -> Statement:
    first, second = g.fresh("int"), g.fresh("int")
    source = g.pick(
        f"enumerate({g.expression(scope, 'list')}[:3])",
        f"zip({g.expression(scope, 'list')}[:3], {g.expression(scope, 'list')})",
        f"((v, v + 1) for v in {g.expression(scope, 'list')}[:2])",
    )
    inner = scope.inner(loop=True)
    g.bind(inner, "int", first)
    g.bind(inner, "int", second)
    return _with_else(g, scope, f"for {first}, {second} in {source}:", g.small(inner))


def for_dict(g: Generator, scope: Scope) -> Statement:
    key, value = g.fresh("str"), g.fresh("int")
    inner = scope.inner(loop=True)
    g.bind(inner, "str", key)
    g.bind(inner, "int", value)
    source = f"list({g.expression(scope, 'dict')}.items())[:3]"
    return compound((f"for {key}, {value} in {source}:", g.small(inner)))


def for_generator(g: Generator, scope: Scope) -> Statement:
    name = g.fresh("int")
    head = f"for {name} in count_up({g.random.randrange(4)}):"
    return _with_else(g, scope, head, _loop(g, scope, "int", name))


def for_tensors(g: Generator, scope: Scope) -> Statement:
    name = g.fresh("tensor")
    source = g.pick(
        f"({g.expression(scope, 'tensor')}, {g.expression(scope, 'tensor')})",
        f"{g.variable(scope, 'tensor')}.reshape(-1)[:2].unbind()",
        f"[{g.expression(scope, 'tensor')} for _ in range(2)]",
    )
    return compound((f"for {name} in {source}:", _loop(g, scope, "tensor", name)))


def while_fuel(g: Generator, scope: Scope) -> Statement:
    fuel = g.fresh("uel")
    test = g.pick("True", g.expression(scope, "bool"))
    inner = scope.inner(loop=True)
    body = (simple(f"{fuel} -= 1\nif {fuel} < 0:\n    break"), *g.small(inner))
    loop = _with_else(g, scope, f"while {test}:", body)
    return compound(("if True:", (simple(f"{fuel} = {g.random.randrange(1, 4)}"), loop)))


def leave_loop(g: Generator, scope: Scope) -> Statement:
    word = g.pick("break", "continue")
    test = g.expression(scope, "bool")
    if g.breaks and g.random.random() < 0.3:
        test = f"{g.variable(scope, 'tensor')}.sum() > {g.expression(scope, 'float')}"
    return compound((f"if {test}:", (simple(word),)))


def try_except(g: Generator, scope: Scope) -> Statement:
    clauses = [("try:", (*g.small(scope.inner()), _risky(g, scope)))]
    kind = g.pick("(ValueError, KeyError)", "ZeroDivisionError", "Exception", "RuntimeError")
    handler = scope.inner()
    error = g.fresh("rror")
    note = simple(f"LOG.append(('caught', type({error}).__name__))")
    clauses.append((f"except {kind} as {error}:", (note, *g.small(handler))))
    if g.random.random() < 0.3:
        clauses.append(("except Exception:", g.small(scope.inner())))
    if g.random.random() < 0.3:
        clauses.append(("else:", g.small(scope.inner())))
    if g.random.random() < 0.3:
        clauses.append(("finally:", g.small(scope.inner(loop=False))))
    return compound(*clauses)


def try_finally(g: Generator, scope: Scope) -> Statement:
    return compound(
        ("try:", g.small(scope.inner())),
        ("finally:", (simple("LOG.append('finally')"), *g.small(scope.inner(loop=False)))),
    )


def _risky(g: Generator, scope: Scope) -> Statement:
    return simple(
        g.pick(
            f"raise ValueError({g.expression(scope, 'str')})",
            f"if {g.expression(scope, 'bool')}:\n    raise KeyError('k')",
            f"LOG.append(1 // {g.expression(scope, 'int')})",
            "table['missing']",
            "x.view(999)",
            "torch.mm(x, x.t() if x.dim() == 2 else x)",
            f"assert {g.expression(scope, 'bool')}, 'assertion'",
            f"assert ({g.expression(scope, 'tensor')}).sum() > -5, f'of a tensor {{len(LOG)}}'",
            f"if ({g.expression(scope, 'tensor')}).float().mean().item() < {g.pick('-1.0', '0.5')}:\n    raise KeyError('t')",
            "pass",
        )
    )


def risky(g: Generator, scope: Scope) -> Statement:
    return _risky(g, scope)


def with_block(g: Generator, scope: Scope) -> Statement:
    inner = scope.inner()
    name = g.fresh("anager")
    head = g.pick(
        f"with Manager({g.expression(scope, 'str')}) as {name}:",
        f"with Manager('s', swallow=True) as {name}:",
        f"with Manager('outer'), Manager('inner') as {name}:",
        "with torch.no_grad():",
        "with torch.enable_grad():",
        f"with noting('n') as {name}:",
    )
    return compound((head, g.small(inner)))


def mutate_list(g: Generator, scope: Scope) -> Statement:
    name, value = g.variable(scope, "list"), g.expression(scope, "int")
    return simple(
        g.pick(
            f"{name}.append({value})",
            f"{name}.extend({g.expression(scope, 'list')}[:2])",
            f"{name}.insert(0, {value})",
            f"{name}[:1] = [{value}]",
            f"if {name}:\n    {name}.pop()",
            f"if {name}:\n    {name}[0] = {value}",
            f"if {name}:\n    del {name}[-1]",
            f"{name}.sort()",
            f"{name}.reverse()",
            f"{name}.clear()",
        )
    )


def mutate_dict(g: Generator, scope: Scope) -> Statement:
    name, value = g.variable(scope, "dict"), g.expression(scope, "int")
    key = g.expression(scope, "str")
    return simple(
        g.pick(
            f"{name}[{key}] = {value}",
            f"{name}.setdefault({key}, {value})",
            f"{name}.update({g.expression(scope, 'dict')})",
            f"{name}.pop({key}, None)",
            f"if 'a' in {name}:\n    {name}['a'] += 1",
        )
    )


def mutate_object(g: Generator, scope: Scope) -> Statement:
    return simple(
        g.pick(
            f"box.value = {g.expression(scope, 'int')}",
            f"box.tensor = {g.expression(scope, 'tensor')}",
            f"box.extra = {g.expression(scope, 'str')}",
            f"LAYER.train({g.expression(scope, 'bool')})",
            f"LAYER.calls = {g.expression(scope, 'int')}",
            f"setattr(box, 'value', {g.expression(scope, 'int')})",
            f"box.items = {g.expression(scope, 'list')}",
            f"LOG.append({g.expression(scope, 'int')})",
            f"box.note = getattr(box, 'note', 0) + {g.expression(scope, 'int')}",
        )
    )


def tensors_in_containers(g: Generator, scope: Scope) -> Statement:
    name, held = g.fresh("tensor"), g.fresh("eld")
    value, number = g.expression(scope, "tensor"), g.expression(scope, "int")
    g.bind(scope, "tensor", name)
    return simple(
        g.pick(
            f"{held} = [{value}, x]\n{held}[0] = {held}[0] + 1\n{name} = {held}.pop(0)",
            f"{held} = {{'t': {value}}}\n{held}['u'] = {held}['t'] * 2\n{name} = {held}['u']",
            f"{held} = Pair({value}, y)\n{name} = {held}.left - {held}.right",
            f"{held} = Box({number}, {value})\n{held}.bump()\n{name} = {held}(y)",
            f"{held} = ({value}, x)\n{name}, _ = {held}",
        )
    )


def closure(g: Generator, scope: Scope) -> Statement:
    """A nested function that reads, and maybe rebinds, variables of this one."""
    name, result = g.fresh("unction"), g.fresh("tensor")
    argument, default = g.fresh("tensor"), g.fresh("int")
    inner = scope.inner(loop=False, nested=True, own=set())
    body: list[Statement] = []
    shared = [v for kind in ("int", "tensor", "list") for v in scope.names[kind] if v in scope.own]
    if shared and g.random.random() < 0.5:
        g.made["nonlocal"] += 1
        rebound = g.random.choice(shared)
        inner.own.add(rebound)
        body.append(simple(f"nonlocal {rebound}"))
    g.bind(inner, "tensor", argument)
    g.bind(inner, "int", default)
    body += g.small(inner)
    body.append(simple(f"return {g.expression(inner, 'tensor')}"))
    head = f"def {name}({argument}, {default}={g.expression(scope, 'int')}):"
    call = f"{name}({g.expression(scope, 'tensor')}{g.pick('', f', {default}=3', ', 4')})"
    g.bind(scope, "tensor", result)
    if g.random.random() < 0.3:
        g.made["closure returned by call"] += 1
        call += f" + sum({name}(y).sum() for _ in range(2))"
    return compound((head, tuple(body)), ("if True:", (simple(f"{result} = {call}"),)))


def nested_generator(g: Generator, scope: Scope) -> Statement:
    """A generator function that closes over variables, driven by hand or by a loop."""
    name, result = g.fresh("enerator"), g.fresh("list")
    first, second = g.expression(scope, "int"), g.expression(scope, "list")
    drive = g.pick(
        f"list({name}())",
        f"[*{name}(), 1]",
        f"[next({name}(), 0)]",
        f"[a for a, _ in zip({name}(), range(2))]",
    )
    g.bind(scope, "list", result)
    body = simple(f"yield {first}\nfor v in {second}[:2]:\n    yield v + 1")
    return compound((f"def {name}():", (body,)), ("if True:", (simple(f"{result} = {drive}"),)))


def loop_of_closures(g: Generator, scope: Scope) -> Statement:
    """Functions made in a loop: by a late-bound and by an early-bound variable."""
    name, held, result = g.fresh("int"), g.fresh("unctions"), g.fresh("int")
    g.bind(scope, "int", result)
    make = g.pick(f"lambda: {name} + 1", f"lambda {name}={name}: {name} * 2")
    return simple(
        f"{held} = []\nfor {name} in range(3):\n    {held}.append({make})\n{result} = sum(f() for f in {held})"
    )


def write_global(g: Generator, scope: Scope) -> Statement:
    return simple(
        g.pick(
            f"tally({g.expression(scope, 'int')})",
            f"SETTINGS['a'] = {g.expression(scope, 'int')}",
            *([] if scope.nested else [f"COUNTER = (COUNTER + {g.expression(scope, 'int')}) % 83"]),
            f"SETTINGS[{g.expression(scope, 'str')}] = {g.expression(scope, 'int')}",
        )
    )


def print_something(g: Generator, scope: Scope) -> Statement:
    kind = g.pick("int", "str", "list", "tensor")
    return simple(f"print('p', {g.expression(scope, kind)}, file=BUFFER)")


def graph_break(g: Generator, scope: Scope) -> Statement:
    return simple("argand.graph_break()")


def early_return(g: Generator, scope: Scope) -> Statement:
    value = g.expression(scope, "tensor" if scope.nested else g.pick("tensor", "list", "int"))
    test = g.expression(scope, "bool")
    return compound((f"if {test}:", (simple(f"return {value}"),)))


def delete(g: Generator, scope: Scope) -> Statement:
    kinds = [
        (kind, name) for kind, names in scope.names.items() for name in names if name in scope.own
    ]
    kind, name = g.random.choice(kinds)
    if len(scope.names[kind]) < 2:
        return simple("pass")
    scope.names[kind].remove(name)
    scope.own.discard(name)
    return simple(f"del {name}")


@dataclass(frozen=True)
class Row:
    make: Callable[[Generator, Scope], Statement]
    weight: int
    nests: bool = False
    in_loop: bool = False
    breaks: bool = False
    inside: bool = False  # at the top level it would end most programs
    outermost: bool = False  # `del` in a branch would leave the variable half bound

    def allowed(self, scope: Scope) -> bool:
        if self.nests and scope.depth >= 3:
            return False
        if self.outermost and (scope.depth or not scope.own):
            return False
        if self.inside and not scope.depth:
            return False
        return scope.loop or not self.in_loop


STATEMENTS = (
    Row(assign, 24),
    Row(unpack, 3),
    Row(augment, 6),
    Row(inplace, 4),
    Row(view_then_write, 2),
    Row(if_plain, 5, nests=True),
    Row(if_tensor, 3, nests=True, breaks=True),
    Row(if_walrus, 1, nests=True),
    Row(match_value, 1, nests=True),
    Row(for_range, 3, nests=True),
    Row(for_list, 2, nests=True),
    Row(for_pairs, 2, nests=True),
    Row(for_dict, 1, nests=True),
    Row(for_generator, 1, nests=True),
    Row(for_tensors, 2, nests=True),
    Row(while_fuel, 2, nests=True),
    Row(leave_loop, 6, in_loop=True),
    Row(try_except, 4, nests=True),
    Row(try_finally, 2, nests=True),
    Row(risky, 1, inside=True),
    Row(with_block, 4, nests=True),
    Row(mutate_list, 5),
    Row(mutate_dict, 4),
    Row(mutate_object, 4),
    Row(tensors_in_containers, 4),
    Row(closure, 4, nests=True),
    Row(nested_generator, 2),
    Row(loop_of_closures, 1),
    Row(write_global, 2),
    Row(print_something, 2, breaks=True),
    Row(graph_break, 1, breaks=True),
    Row(early_return, 1),
    Row(delete, 2, outermost=True),
)
