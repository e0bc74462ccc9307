"""Numbers and texts of users' classes: every method they may have, beside tensors and beside plain values."""

import itertools
import math
import operator

import pytest
import torch

import argand

CALLED: list[str] = []
_OPERATORS = "add sub mul matmul truediv floordiv mod pow lshift rshift and or xor divmod".split()
_BINARY = [f"__{form}{name}__" for name in _OPERATORS for form in ("", "r", "i")]
_COMPARISONS = [f"__{name}__" for name in ("lt", "le", "eq", "ne", "gt", "ge")]
_UNARY = [
    f"__{name}__" for name in ("neg", "pos", "invert", "abs", "floor", "ceil", "trunc", "round")
]
_ANSWERS = {
    "__bool__": False,
    "__index__": 1,
    "__float__": 1.5,
    "__int__": 1,
    "__complex__": 1j,
    "__hash__": 7,
}


def _method(name, answer):
    def method(self, *others):
        CALLED.append(name)
        return answer

    return method


def _class_of(base, answer):
    """A subclass with all methods; its operators give their name, or `NotImplemented`."""
    methods = {
        name: _method(name, name if answer is None else answer) for name in _BINARY + _COMPARISONS
    }
    methods |= {
        name: _method(name, name) for name in (*_UNARY, "__format__", "__str__", "__repr__")
    }
    methods |= {name: _method(name, given) for name, given in _ANSWERS.items()}
    return type("My", (base,), methods)


VALUES = {"int": 2, "float": 2.0, "complex": 2 + 1j, "str": "2"}
MADE = {
    f"{name}{'' if answer is None else ' that leaves it'}": (_class_of(type(value), answer), value)
    for name, value in VALUES.items()
    for answer in (None, NotImplemented)
}
_SYMBOLS = "+ - * @ / // % ** << >> & | ^ < <= == != > >=".split()
BOTH = {f"{left} {symbol} {right}" for symbol in _SYMBOLS for left, right in ("ko", "ok")}
BOTH |= {f"operator.i{name}(o, k)" for name in ("add", "mul", "matmul")} | {
    "divmod(k, o)",
    "divmod(o, k)",
}
BOTH |= {
    "pow(k, o)",
    "pow(o, k)",
    "operator.mul(k, o)",
    "operator.mul(o, k)",
    "k and o",
    "[k] == [o]",
    "k in [o]",
}
ALONE = {
    "-k", "+k", "~k", "abs(k)", "round(k)", "not k", "bool(k)", "f'{k}'", "f'{k:5}'", "f'{k!r}'", "str(k)", "hash(k)",
    "int(k)", "float(k)", "complex(k)", "1 if k else 2", "sum([k, k])", "max(k, 1)", "{2: 1, 7: 3}.get(k)",
    "divmod(k, 3)", "{k: 1}[k]", "len({k, 7})", "len({i: 1 for i in (7, k)})", "any([k])", "all((k,))", "[*filter(None, [k])]",
    "'%s' % k", "'%r' % [k]", "'{}'.format(k)", "pow(2, k)", "round(2.555, k)", "math.sqrt(k)", "math.fsum([k])", "bytes([k])",
    "math.gcd(k, 4)", "complex(1, k)", "int('11', k)", "'a'.ljust(k)", "slice(k).indices(5)", "bin(k)", "hex(k)", "oct(k)",
    "chr(k)", "[*range(k)]", "[*enumerate('a', k)]", "[*itertools.islice('abc', k)]", "[*itertools.repeat(1, k)]",
    "[*itertools.combinations('abc', k)]", "[*itertools.permutations('ab', k)]", "math.isnan(k)", "changed(k)", "[1, 2, 3][k]",
    "math.floor(k)", "math.ceil(k)", "math.trunc(k)", "torch.mul(x, k)", "x.add(k)", "torch.full((2,), k)",
}  # fmt: skip
INDEXED = {
    "operator.index(k)", "[1, 2, 3][k]", "(1, 2, 3)[k]", "'abc'[k]", "b'abc'[k]", "[1, 2, 3][k:]", "'abc'[:k]",
    "(1, 2, 3)[::k]", "range(9)[k]", "[1, 2, 3].pop(k)", "[*range(k)]", "[1] * k", "k * (1,)", "'a' * k", "changed(k)",
}  # fmt: skip
OTHERS = {
    "tensor": torch.ones(2),
    "integers": torch.ones(2, dtype=torch.int64),
    "int": 3,
    "float": 2.5,
    "list": [1, 2],
}


def _changed(k):
    values = [1, 2, 3, 4, 5]
    values.insert(k, 9)
    values[k] = 8
    del values[k:]
    return values


_ORIGINS = {"argument": "k", "global": "K", "item": "held[0]", "made": "KIND(VALUE)"}


def _program(expression, origin, kind, value):
    names = {
        "math": math,
        "operator": operator,
        "itertools": itertools,
        "torch": torch,
        "changed": _changed,
    }
    names |= {"KIND": kind, "VALUE": value, "K": kind(value)}
    text = f"def program(k, held, o, x):\n    k = {_ORIGINS[origin]}\n    answer = {expression}\n    return answer, x + 1"
    exec(text, names)
    return names["program"]


def _shown(value):
    if isinstance(value, torch.Tensor):
        return str(value.dtype), value.tolist()
    if isinstance(value, (list, tuple)):
        return type(value), [_shown(item) for item in value]
    base = next((kind for kind in (int, float, complex, str) if isinstance(value, kind)), object)
    return type(value), base.__repr__(value)


def _run(function, k, other):
    CALLED.clear()
    other = (
        other.clone()
        if isinstance(other, torch.Tensor)
        else [*other]
        if isinstance(other, list)
        else other
    )
    try:
        answer = _shown(function(k, [k], other, torch.ones(2))[0])
    except Exception as error:
        answer = type(error)
    return answer, [*CALLED]


def _differing(expressions, others, kind, value):
    """The programs that give something else, or call other methods, at the first or the second call."""
    different: list[object] = []
    for origin in _ORIGINS:
        for expression in sorted(expressions):
            program = _program(expression, origin, kind, value)
            compiled = argand.compile(program, backend="eager")
            for name in others:
                wanted = _run(program, kind(value), OTHERS[name])
                for call in (1, 2):
                    got = _run(compiled, kind(value), OTHERS[name])
                    if got != wanted:
                        different.append((origin, expression, name, call, wanted, got))
    return different


@pytest.mark.parametrize("name", MADE)
def test_operators_of_numbers_with_methods(name):
    """`k * x` took the value of a number whose class has a `__mul__`, and left the method out."""
    assert not _differing(BOTH, OTHERS, *MADE[name])


@pytest.mark.parametrize("name", MADE)
def test_questions_to_numbers_with_methods(name):
    """`divmod(k, 3)` and `math.floor(k)` ran methods once, while they were traced."""
    assert not _differing(ALONE, ["tensor"], *MADE[name])


@pytest.mark.parametrize("name", ["int", "int that leaves it"])
def test_an_int_is_its_own_index(name):
    """`[1, 2, 3][k]` takes the value of an int, whatever `__index__` of its class says."""
    assert not _differing(INDEXED, ["int"], *MADE[name])


@pytest.mark.parametrize("answer", [None, NotImplemented])
def test_sequences_are_asked_after_numbers(answer):
    """`[1] * k` asks `k.__rmul__` before the list; `__index__` of other objects is interpreted."""
    expressions = {"o * k", "k * o", "o + k", "o[k:]", "operator.imul(o, k)"}
    kind = _class_of(type("Object", (), {"__init__": lambda self, value: None}), answer)
    assert not _differing(expressions, ["list"], kind, 0)
