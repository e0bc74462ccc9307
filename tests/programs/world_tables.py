"""Statements of programs with a world: what Python does around tensors, with holes.

Holes: ``{x}`` ``{y}`` tensors, ``{v}`` a new name, ``{n}`` an int, ``{f}`` a float, ``{c}`` a condition, ``{i}`` a
dimension, ``{T}`` a tensor expression, ``{B}`` a block of statements at the indentation of its line.
"""

from __future__ import annotations

from typing import Final


def _split(text: str) -> list[str]:
    return [row.strip("\n") for row in text.split("\n--\n")]


INTS: Final = (
    *("0", "1", "2", "3", "-1", "{x}.shape[0]", "{x}.dim()", "STATE['k']", "len(ITEMS)", "COUNT"),
    *(
        "int(NUMS[0])",
        "BOX.size",
        "len(BOX)",
        "{x}.numel()",
        "BOX.double",
        "METER['a']",
        "ITEMS[0]",
    ),
    *(
        "len({x})",
        "BOX.made_it",
        "{x}.size(-1)",
        "sum(ITEMS)",
        "max(ITEMS)",
        "BOX.slow",
        "len(LOG)",
    ),
    *("Size({x}.dim()).columns", "NAMES['two']", "METER.level", "{x}.shape[-1] // 2", "NUMS.sum()"),
    *("{n} % 3", "{n} + 1", "int({f})", "abs({n})", "min({n}, 2)", "operator.index(NUMS[1])"),
)
FLOATS: Final = (
    *("0.5", "2.0", "-1.25", "SCALE", "BOX.scale", "float(NUMS[1])", "math.sqrt(abs({n}) + 4)"),
    *(
        "REALS[0].item()",
        "{n} / 2",
        "float(REALS[1])",
        "round({f}, 1)",
        "math.pi",
        "float(Wrapped(1))",
    ),
)
CONDITIONS: Final = (
    *(
        "{x}.shape[0] > {n}",
        "FLAG",
        "{x}.sum() > 0",
        "BOX",
        "{x}.dim() == 2",
        "{n} in SEEN",
        "ITEMS",
    ),
    *(
        "{x} is {y}",
        "{x}.shape == {y}.shape",
        "{x}.requires_grad",
        "{x}.is_contiguous()",
        "not FLAG",
    ),
    *("{x}.dtype.is_floating_point", "STATE.get('name') == 'a'", "{n} == {n}", "{n} < {n} <= 5"),
    *("'two' in NAMES", "{n} in BOX", "bool(ITEMS) and {x}.numel() > 1", "hasattr(BOX, 'made_x')"),
    *(
        "isinstance({x}, torch.Tensor)",
        "Size({n}) < Size({n})",
        "BOX == Box()",
        "len({x}.shape) > 1",
    ),
    *(
        "all(s > 1 for s in {x}.shape)",
        "any(k == {n} for k in ITEMS)",
        "NUMS[0] > {n}",
        "{x}.any()",
    ),
    *("torch.is_grad_enabled()", "callable(BOX)", "NET.training", "{x}.shape[-1] == {y}.shape[-1]"),
)
TENSORS: Final = (
    *("{x}", "{x}", "{x} * {f}", "{x} + {n}", "{x} + {y}", "{x} - {y}", "{x} * {y}", "{x}.clone()"),
    *(
        "{x}.sum()",
        "{x}[:1]",
        "{x}[..., -1]",
        "{x}.reshape(-1)",
        "{x}.detach()",
        "{x}.sin()",
        "{x}.T",
    ),
    *("{x}.expand(2, *{x}.shape)", "torch.stack([{x}, {x}])", "{x}.float()", "{x}[0]", "{x}.abs()"),
    *(
        "BUFFER",
        "TABLE[0]",
        "{x}.new_full((2,), {n})",
        "torch.full((3,), {f})",
        "{x}.unsqueeze({i})",
    ),
    *("torch.arange({x}.shape[0])", "torch.zeros({x}.shape[0], 2)", "{x}.mean(0)", "{x}.max()"),
    *(
        "torch.as_tensor(REALS)",
        "torch.tensor(NUMS[1])",
        "{x}.double()",
        "{x} > {f}",
        "{x}.cumsum(0)",
    ),
    *("torch.cat([{x}, {x}])", "{x}.view({x}.shape)", "{x}.softmax(-1)", "NET.weight", "{x} / 2"),
)

PLAIN: Final = _split(
    """\
{v} = {T}
--
{v} = BOX({T}, {f})
--
{v} = BOX({T}, {n}, 1, 2, a=1)
--
{v} = helper({T}, {n}, shift={f})
--
{v} = helper({T}, 3, 1, z={n})
--
{v} = pick({T}, 'sum' if {c} else 'max')
--
{v} = pick({T}, STATE)
--
{v} = pick({T}, Point({n}))
--
{v} = pick({T}, ITEMS)
--
{v} = NET({T}, shift={n})
--
{v} = (Wrapped({T}) + {f}).t
--
{v} = ({x} + Wrapped({T})).t
--
{v} = ({f} * Wrapped({T}) @ Wrapped({T})).t
--
{v}_w = Wrapped({T})
{v}_w += {n}
{v} = (-{v}_w).t * len(repr({v}_w))
--
{v} = Pair({T}, {n})
--
{v} = dataclasses.replace(Pair({T}), right={n})
--
{v} = Point({T}, {n})._replace(y={T})
--
{v} = [{T}, {n}, {T}]
{v}.append({T})
--
{v} = {{'a': {T}, 'b': [{T}, {n}]}}
{v}['c'] = {v}['a'] + 1
--
{v} = sorted([{n}, {n}, 7], key=lambda k: -k)
--
{v} = max([Size({n}), Size({n}, 4)]).columns
--
{v} = [t * k for k, t in enumerate([{T}, {T}], {n})][-1]
--
{v} = {{k: {x} * k for k in ITEMS if k != {n}}}
--
{v} = sum((t.sum() for t in ({T}, {T})), {f})
--
{v}, *{v}_rest = [{T}, {T}, {n}]
--
({v}, {v}_b), {v}_c = ({T}, {n}), {T}
--
{v} = functools.reduce(operator.mul, [{T}, {n}, {f}])
--
{v} = list(map(lambda t, k: t + k, [{x}, {y}], ITEMS))[0]
--
{v} = list(itertools.accumulate([{n}, {n}, 2]))[-1] * {T}
--
{v} = [a + b for a, b in zip([{T}], ITEMS[::-1])]
--
{v} = functools.partial(helper, {T}, {n})(shift={f})
--
{v} = Box.of({T}).t + Box.twice({T})
--
{v} = f"{{{n}}} {{ {x}.dim():>3}} {{BOX.size!r}}"
--
{v} = "{{}}-{{}}".format({x}.shape[0], {n})
--
{v} = {T} if {c} else {T}
--
{v} = ({c}) and {n} or {f}
--
{v} = ({v}_s := {n}) * {T} + {v}_s
--
{v} = {T}.numpy(force=True) * 2
{v}[..., 0] = 1
{v}_t = torch.from_numpy({v}) + {n}
--
{v} = torch.from_numpy(np.cumsum(REALS) * {f}) + {n}
--
{v} = {T} * np.float64(0.5)
--
{v} = {T} + NUMS[{n} % 3]
--
{v} = torch.tensor([{n}, {f}, NUMS[0]])
--
{v} = torch.tensor([float(v) for v in REALS]) * {f}
--
{v} = np.where(NUMS > {n}, NUMS, 0).sum() * {T}
--
{v} = {x}.shape
--
{v} = tuple(s * 2 for s in {x}.shape) + ({n},)
--
{v} = {x}.stride(), {x}.storage_offset(), {x}.dtype, {x}.is_contiguous()
--
{v} = {x}.tolist()
--
{v} = next(iter({x}), {n})
--
{v} = [*{x}.unbind()][:2]
--
{v} = dict(zip(NAMES, {x}.unbind()))
--
{v} = getattr({x}, 'sum' if {c} else 'mean')()
--
{v} = collections.deque([{T}, {T}], maxlen=1)[0]
--
{v} = (lambda t, *, k={n}: t * k)({T})
--
{v} = str({n}).zfill(3) + STATE['name']
--
{v} = divmod({n}, 2), {n} ** 2, -{n} // 2, bool({n})
--
{v} = {T}.to({y}.dtype) + {y}
--
{v} = torch.vmap(lambda t: t * 2 + {n})({x})
--
{v} = torch.func.grad(lambda t: (t * t).sum())({x})"""
)

STATEFUL: Final = _split(
    """\
STATE['k'] += 1
--
STATE['name'] = str({n})
--
STATE['t'] = {T}
--
CACHE.setdefault({n}, {T})
--
{v} = CACHE.pop({n}, None)
--
BOX.scale = {f}
--
BOX.t = {T}
--
BOX.items.append({n})
--
BOX[0] += {n}
--
BOX.double = {n}
--
ITEMS.append({n})
--
ITEMS[:1] = [{n}, 1]
--
del ITEMS[1:2]
--
SEEN.add({n})
--
SEEN.discard({n})
--
LOG.append(({n}, str({x}.dtype)))
--
LOG.append({c})
--
METER['b'] += {n}
--
METER.level = {n}
--
NAMES.move_to_end('one')
--
NAMES[str({n})] = {n}
--
BUFFER.add_({n})
--
BUFFER[0] = {f}
--
TABLE[0] = BUFFER
--
NUMS[0] += 1
--
NUMS[{n} % 3] = {n}
--
REALS[:] = REALS[::-1].copy()
--
NET.factor += 1
--
NET.eval()
--
setattr(BOX, 'late', {T})
{v} = BOX.late
--
{v} = vars(BOX).get('calls', 0) + {n}
--
{x} += {n}
--
{x} *= {f}
--
{v} = {x}
{v} += {n}
--
{v} = {x}.view(-1)
{v}[{n}] = {n}
{v}_2 = {x}.view({x}.shape) * 2
--
{v} = {x}[..., :1]
{v}_2 = {v}.unsqueeze(0)
{v}_2.mul_({n})
{v}.add_({x}[..., -1:])
--
{v} = {x}.t()
{v}.add_(1)
{v}_2 = {v}[0]
{v}_2.zero_()
--
{v} = [{x}, {x}[:1]]
for {v}_t in {v}:
    {v}_t.add_({n})
--
{v} = {x}.detach()
{v}.sub_({n})
--
torch.add({x}, {n}, out={x})
--
{x}.copy_({T})
--
{v} = {x}.chunk(2)
{v}[0].mul_({n})
{v}[-1].add_({v}[0])
--
{v} = {x}.unfold(0, 2, 1)
{v}_2 = {v}.sum(-1)
--
{v} = {x}.diagonal()
{v}.fill_({n})
--
{x}.unsqueeze_(0)
{v} = {x} * 2
{x}.squeeze_(0)
--
{v} = {x}.clone()
{v}.t_().add_({n})"""
)

BLOCKS: Final = _split(
    """\
if {c}:
    {B}
else:
    {B}
--
if {c}:
    {B}
elif {c}:
    {B}
--
for {v}_i in range({n}):
    if {v}_i > 3:
        break
    {v} = {T} * {v}_i
    {B}
else:
    LOG.append('else')
--
for {v}_i, {v}_t in enumerate({x}.unbind()[:2]):
    if {c}:
        continue
    {B}
    {v} = {v}_t * {v}_i
--
for {v}_t in {x}[:3]:
    {v} = {v}_t + {n}
    if {c}:
        break
--
for {v}_k, {v}_v in list(NAMES.items()):
    {v} = {x} * {v}_v
    {B}
--
{v}_n = 0
while {v}_n < {n} and {v}_n < 4:
    {v}_n += 1
    {B}
    if {c}:
        break
--
try:
    {B}
    if {c}:
        raise ValueError('v', {n})
    {B}
except ValueError as error:
    {v} = error.args[-1] * {T}
else:
    {B}
finally:
    LOG.append('finally')
--
try:
    {v} = {T}.reshape({n}, 2)
except RuntimeError:
    {v} = {T}
--
try:
    {v} = ITEMS[{n}]
except IndexError as error:
    {v} = str(error)
--
try:
    {v} = {n} / {n}
except (ZeroDivisionError, TypeError):
    {v} = 0.0
--
try:
    try:
        {B}
        {v} = {{}}[{n}]
    finally:
        STATE['k'] += 1
except KeyError as error:
    {v} = {T} + error.args[0]
--
with torch.no_grad():
    {B}
--
with torch.set_grad_enabled(bool({c})):
    {B}
--
with torch.no_grad(), torch.enable_grad():
    {B}
--
with Early('a'), Early('b') as {v}_e:
    {B}
    {v} = len({v}_e.name) * {T}
--
with Early('s', swallow=True):
    {B}
    if {c}:
        raise KeyError('gone')
    {B}
--
with noting('n') as {v}_k:
    {B}
    {v} = {T} * ({n} // {v}_k)
--
with noting('z'):
    {B}
    {v} = {n} // {n}
--
with contextlib.suppress(IndexError, RuntimeError):
    {v} = {x}[{n}]
    {B}
--
with contextlib.ExitStack() as {v}_s:
    {v}_s.enter_context(Early('x'))
    {v}_s.callback(LOG.append, {n})
    {B}
--
with torch.autocast('cpu', dtype=torch.bfloat16):
    {v} = {x} @ {y}.mT
    {B}
--
def {v}_f(t, k={n}):
    {v}_z = t * k
    return {v}_z + {T}
{v} = {v}_f({x}) + {v}_f({y}, k=2)
--
{v}_n = {n}
def {v}_g(t):
    nonlocal {v}_n
    {v}_n += 1
    return t * {v}_n
{v} = {v}_g({x}) + {v}_g({y}) + {v}_n
--
{v}_fs = [lambda t, k=k: t * k for k in ITEMS]
{v} = [f({x}) for f in {v}_fs[:2]]
--
{v}_fs = [lambda t: t * k for k in ITEMS]
{v} = {v}_fs[0]({x})
--
def {v}_gen():
    for k in range({n}):
        if k > 2:
            return
        yield {x} * k
{v} = list({v}_gen())
--
{v}_it = walk(3)
{v} = [next({v}_it), {v}_it.send({n})]
for {v}_p in {v}_it:
    {B}
--
class {v}_C(Box):
    size = {n}
    def __call__(self, t):
        return super().__call__(t, self.size) + {f}
{v} = {v}_C()({T})
--
{v}_b = Box({x})
{v}_b.size = {n}
if {v}_b:
    {B}
{v} = [*{v}_b, len({v}_b.items)]
--
match {x}.shape:
    case [_]:
        {B}
    case [a, b] if a == b:
        {v} = {T} * a
    case _:
        {B}
--
match {n}:
    case 0 | 1:
        {B}
    case int(q) if q > 2:
        {v} = {T} * q
--
assert {n} < 100, 'too large'
{B}
--
if {c}:
    return {T}
--
if not {c}:
    raise RuntimeError(f'stopped {{ {n} }}')
--
print('seen', {n}, file=io_out)
{B}
--
torch._assert({n} > -5, 'no')
{B}
--
COUNT += {n}
{v} = COUNT * {T}"""
)

CHANGES: Final = (
    *(
        "STATE['k'] += 1",
        "BOX.scale = 3.0",
        "Box.scale = 0.5",
        "ITEMS.append(4)",
        "ITEMS.reverse()",
    ),
    *("FLAG = not FLAG", "SCALE = 0.25", "BUFFER.add_(1)", "BUFFER = torch.ones(3)", "NUMS[0] = 7"),
    *("NET.eval()", "NET.factor = 5", "NET.weight.data.mul_(2)", "BOX = Box()", "SEEN.add(2)"),
    *(
        "Box.__len__ = lambda self: 5",
        "Box.__bool__ = lambda self: False",
        "NAMES.pop('one', None)",
    ),
    *(
        "STATE['name'] = 'b'",
        "BOX.items = [5, 6]",
        "Box.double = property(lambda self: 9)",
        "del BOX.t",
    ),
    *(
        "helper = lambda t, *a, **k: t - 1",
        "pick = lambda t, by: t",
        "CACHE.clear()",
        "TABLE.mul_(2)",
    ),
    *("REALS[0] = 4", "NUMS = NUMS + 1", "NET.inner[0] = torch.nn.Sigmoid()", "METER.level = 4"),
    *("Box.__call__ = lambda self, t, *a, **k: t + self.size", "NET.train()", "ITEMS = [0]"),
    *("helper.__wrapped__.__kwdefaults__['shift'] = 2", "Wrapped.__neg__ = lambda self: self"),
    *("BOX.__class__ = type('Other', (Box,), {'size': 4})", "NUMS.resize(4, refcheck=False)"),
    *("TABLE = TABLE.double()", "BUFFER.requires_grad_()", "NET.weight.requires_grad_(False)"),
    *(
        "NET.weight = torch.nn.Parameter(torch.ones(3))",
        "LOG.clear()",
        "Clamped.__get__ = lambda *a: 3",
    ),
)
