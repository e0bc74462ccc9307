"""Expressions of generated programs, by the type of their value."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Scope:
    """Variables that are bound at this point, by type."""

    names: dict[str, list[str]]
    loop: bool = False
    depth: int = 0
    nested: bool = False  # inside of a closure, whose callers want a tensor
    own: set[str] = field(default_factory=set)  # names an assignment may rebind

    def inner(self, **changes: object) -> Scope:
        copy = Scope(
            {t: list(v) for t, v in self.names.items()},
            self.loop,
            self.depth + 1,
            self.nested,
            set(self.own),
        )
        for name, value in changes.items():
            setattr(copy, name, value)
        return copy


@dataclass
class Expressions:
    random: random.Random
    made: Counter[str] = field(default_factory=Counter)
    serial: int = 0
    breaks: bool = True  # programs without graph breaks exercise larger graphs

    # ---- names

    def fresh(self, kind: str) -> str:
        self.serial += 1
        return f"{kind[0]}{self.serial}"

    def pick(self, *options: str) -> str:
        return self.random.choice(options)

    def variable(self, scope: Scope, kind: str) -> str:
        return self.random.choice(scope.names[kind])

    def target(self, scope: Scope, kind: str) -> str:
        """A variable to assign: an existing one or a new one."""
        own = [name for name in scope.names[kind] if name in scope.own]
        if own and self.random.random() < 0.4:
            return self.random.choice(own)
        return self.fresh(kind)

    def bind(self, scope: Scope, kind: str, name: str) -> None:
        for known in scope.names.values():
            if name in known:
                known.remove(name)
        scope.names[kind].append(name)
        scope.own.add(name)

    # ---- expressions

    def expression(self, scope: Scope, kind: str, depth: int = 2) -> str:
        if depth <= 0 or self.random.random() < 0.15:
            return self.variable(scope, kind)
        return getattr(self, f"{kind}_expression")(scope, depth - 1)

    def int_expression(self, scope: Scope, depth: int) -> str:
        e = lambda kind: self.expression(scope, kind, depth)
        chosen = self.random.randrange(18)
        match chosen:
            case 0:
                return str(self.random.randrange(-3, 9))
            case 1:
                return f"({e('int')} {self.pick('+', '-', '*', '&', '|', '^')} {e('int')}) % 97"
            case 2:
                return f"({e('int')} // {self.random.randrange(1, 4)})"
            case 3:
                return f"len({e(self.pick('list', 'dict', 'str', 'set'))})"
            case 4:
                return f"{self.variable(scope, 'tensor')}.{self.pick('dim()', 'ndim', 'numel()')}"
            case 5:
                return f"({e('int')} if {e('bool')} else {e('int')})"
            case 6:
                self.made["method call"] += 1
                return self.pick(
                    "box.bump()", f"box.bump(by={e('int')})", "box.double", "box.value"
                )
            case 7:
                self.made["global write in helper"] += 1
                return f"tally({e('int')})"
            case 8:
                return f"({e('list')} or [3])[0]"
            case 9:
                return f"table.get({e('str')!s}, {e('int')})"
            case 10:
                self.made["generator expression"] += 1
                return f"sum(v * v for v in {e('list')}) % 97"
            case 11:
                self.made["generator function"] += 1
                return f"sum(count_up({self.random.randrange(4)}))"
            case 12:
                self.made["sorted, min, max"] += 1
                return self.pick(
                    f"max({e('int')}, {e('int')})",
                    f"min([{e('int')}, *{e('list')}])",
                    f"sorted([{e('int')}, *{e('list')}], key=lambda v: -v)[0]",
                )
            case 13:
                return f"int({e('bool')})"
            case 14:
                self.made["lambda"] += 1
                return f"(lambda a, b={e('int')}: (a - b) % 97)({e('int')})"
            case 15:
                self.made["global read"] += 1
                return self.pick("COUNTER", "SETTINGS['a']", "len(LOG)")
            case 16:
                self.made["recursion"] += 1
                return f"factorial({self.random.randrange(5)})"
            case _:
                return f"abs({e('int')})"

    def float_expression(self, scope: Scope, depth: int) -> str:
        e = lambda kind: self.expression(scope, kind, depth)
        match self.random.randrange(6):
            case 0:
                return self.pick("0.5", "-1.25", "2.0", "SCALE")
            case 1:
                return f"({e('float')} {self.pick('+', '-', '*')} {e('float')})"
            case 2:
                return f"float({e('int')})"
            case 3 if self.breaks:
                self.made["item"] += 1
                return f"{e('tensor')}.sum().item()"
            case 4:
                return f"({e('int')} / 4)"
            case _:
                return f"round({e('float')}, 2)"

    def bool_expression(self, scope: Scope, depth: int) -> str:
        e = lambda kind: self.expression(scope, kind, depth)
        compare = self.pick("<", "<=", ">", ">=", "==", "!=")
        match self.random.randrange(11):
            case 0:
                return f"{e('int')} {compare} {e('int')}"
            case 1:
                self.made["chained comparison"] += 1
                return f"{e('int')} < {e('int')} {compare} {e('int')}"
            case 2:
                return f"({e('bool')} {self.pick('and', 'or')} {e('bool')})"
            case 3:
                return f"(not {e('bool')})"
            case 4:
                return f"{e('int')} {self.pick('in', 'not in')} {e(self.pick('list', 'set'))}"
            case 5:
                return f"{e('str')} in {e('dict')}"
            case 6:
                return f"{self.variable(scope, 'tensor')} is {self.pick('x', 'None', 'box.tensor')}"
            case 7:
                self.made["isinstance"] += 1
                return f"isinstance({e(self.pick('int', 'list', 'tensor'))}, {self.pick('int', 'list', 'torch.Tensor', '(str, bool)')})"
            case 8:
                self.made["any, all"] += 1
                return f"{self.pick('any', 'all')}(v > {e('int')} for v in {e('list')})"
            case 9:
                return f"{e('float')} {compare} {e('float')}"
            case _:
                return f"bool({e(self.pick('int', 'list', 'str'))})"

    def str_expression(self, scope: Scope, depth: int) -> str:
        e = lambda kind: self.expression(scope, kind, depth)
        match self.random.randrange(6):
            case 0:
                return self.pick("'a'", "'b'", "'word'")
            case 1:
                self.made["f-string"] += 1
                return (
                    f"f'{{{self.variable(scope, 'int')}}}:{{{self.variable(scope, 'list')}!r:>4}}'"
                )
            case 2:
                return f"({e('str')} + {e('str')})[:6]"
            case 3:
                return f"{e('str')}.{self.pick('upper()', 'strip()', 'title()')}"
            case 4:
                return f"str({e('int')})"
            case _:
                return f"'-'.join([{e('str')}, {e('str')}])[:8]"

    def list_expression(self, scope: Scope, depth: int) -> str:
        e = lambda kind: self.expression(scope, kind, depth)
        match self.random.randrange(10):
            case 0:
                return f"[{e('int')}, {e('int')}]"
            case 8:
                self.made["containers of the library"] += 1
                return self.pick(
                    f"list(deque({e('list')}, maxlen=2))",
                    f"Stack({e('list')}).push({e('int')})",
                    f"sorted(defaultdict(int, {{{e('int')}: 1}}))",
                    f"[v for v in reversed({e('list')})]",
                )
            case 1:
                self.made["list comprehension"] += 1
                return f"[v + {e('int')} for v in {e('list')} if v % 2]"
            case 2:
                return f"({e('list')} + {e('list')})[:5]"
            case 3:
                self.made["slice of a list"] += 1
                return f"{e('list')}[{self.pick('1:', ':2', '::-1', '-2:')}]"
            case 4:
                return f"sorted({e(self.pick('list', 'set'))})"
            case 5:
                self.made["star display"] += 1
                return f"[*{e('list')}, {e('int')}][:5]"
            case 6:
                self.made["map, filter, zip"] += 1
                return self.pick(
                    f"list(map(lambda v: v + 1, {e('list')}))",
                    f"list(filter(None, {e('list')}))",
                    f"[a - b for a, b in zip({e('list')}, {e('list')})]",
                    f"[i * v for i, v in enumerate({e('list')})]",
                )
            case 7:
                self.made["nested comprehension"] += 1
                return (
                    f"[a + b for a in {e('list')}[:2] for b in range({self.random.randrange(3)})]"
                )
            case _:
                return f"list(range({self.random.randrange(4)}))"

    def dict_expression(self, scope: Scope, depth: int) -> str:
        e = lambda kind: self.expression(scope, kind, depth)
        match self.random.randrange(4):
            case 0:
                return f"{{'a': {e('int')}, {e('str')}: {e('int')}}}"
            case 1:
                self.made["dict comprehension"] += 1
                return f"{{str(v): v for v in {e('list')}}}"
            case 2:
                return f"{{**{e('dict')}, 'z': {e('int')}}}"
            case _:
                return f"dict(a={e('int')}, b={e('int')})"

    def set_expression(self, scope: Scope, depth: int) -> str:
        e = lambda kind: self.expression(scope, kind, depth)
        match self.random.randrange(3):
            case 0:
                return f"{{{e('int')}, {e('int')}}}"
            case 1:
                self.made["set comprehension"] += 1
                return f"{{v % 5 for v in {e('list')}}}"
            case _:
                return f"({e('set')} {self.pick('|', '&', '-')} {e('set')})"

    def tensor_expression(self, scope: Scope, depth: int) -> str:
        e = lambda kind: self.expression(scope, kind, depth)
        match self.random.randrange(19):
            case 0 | 1 | 2:
                return f"({e('tensor')} {self.pick('+', '-', '*')} {e(self.pick('tensor', 'tensor', 'float', 'int'))})"
            case 3:
                return f"torch.{self.pick('relu', 'tanh', 'sigmoid', 'abs', 'neg')}({e('tensor')})"
            case 4:
                return f"{e('tensor')}.{self.pick('clone()', 'contiguous()', 'float()', 'sum()', 'mean()', 'detach()')}"
            case 5:
                return f"torch.{self.pick('maximum', 'minimum')}({e('tensor')}, {e('tensor')})"
            case 6:
                self.made["keyword arguments"] += 1
                return self.pick(
                    f"scale({e('tensor')})",
                    f"scale({e('tensor')}, {e('float')}, shift={e('float')})",
                    f"scale({e('tensor')}, 1.5, 1, 2, extra={e('int')})",
                    f"scale(*[{e('tensor')}], **{{'shift': {e('float')}}})",
                )
            case 7 if self.breaks:
                self.made["break in callee"] += 1
                return self.pick(
                    f"describe({e('tensor')})", f"choose({e('tensor')}, {e('tensor')})"
                )
            case 8:
                self.made["callable object"] += 1
                return f"box({e('tensor')})"
            case 9:
                return f"torch.where({e('tensor')} > {e('float')}, {e('tensor')}, {e('tensor')})"
            case 10:
                self.made["view"] += 1
                return f"{e('tensor')}.{self.pick('view(-1)[:1]', 'unsqueeze(0)', 'reshape(-1)[0]', 'expand_as(x)', 'flatten()[0]')}"
            case 11:
                return f"({e('tensor')} if {e('bool')} else {e('tensor')})"
            case 12:
                self.made["shape read"] += 1
                return f"({e('tensor')} * x.shape[{self.pick('0', '-1')}])"
            case 13:
                self.made["factory"] += 1
                return self.pick(
                    "torch.zeros_like(x)",
                    "x.new_ones(x.shape[-1])",
                    f"torch.full((1,), {e('float')})",
                )
            case 14:
                self.made["stack of a comprehension"] += 1
                return f"torch.stack([{e('tensor')}.sum() * i for i in range(2)]).sum()"
            case 15:
                self.made["module"] += 1
                return self.pick(f"LAYER({e('tensor')})", f"LAYER({e('tensor')}, times=2)")
            case 16:
                self.made["cat"] += 1
                return f"torch.cat([{e('tensor')}.reshape(-1), y])[: x.shape[-1]]"
            case 17:
                self.made["partial"] += 1
                return f"partial(scale, by={e('float')})({e('tensor')})"
            case _:
                self.made["dtype"] += 1
                return self.pick(
                    f"({e('tensor')} > {e('float')}).float()",
                    f"{e('tensor')}.to(torch.float64).float()",
                    f"{e('tensor')}.int().float()",
                    f"torch.arange({e('tensor')}.shape[-1] if x.dim() else 1, dtype=x.dtype).sum()",
                )
