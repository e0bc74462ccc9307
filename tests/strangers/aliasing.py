"""Views, writes, and who shares memory with whom."""

import torch

from tests.strangers.harness import made, rand, stranger


@stranger(lambda: (rand(4, 3),), lambda: (rand(4, 3, seed=1).mT.contiguous().mT,))
def swap_rows(x):
    x[0], x[1] = x[1], x[0].clone()
    x[[2, 3]] = x[[3, 2]]
    return x


@stranger(lambda: (rand(4, 3),))
def swap_without_clone(x):
    x[0], x[1] = x[1], x[0]
    return x


@stranger(lambda: (rand(4, 3),))
def shift_in_place(x):
    x[1:] = x[:-1].clone()
    x[:, 0] -= x[:, 1]
    x.T[0] *= 2
    return x.T


@stranger(lambda: (rand(6),), lambda: (rand(12)[::2],))
def many_views(x):
    a, b = x[:3], x[3:]
    a += 1
    b.mul_(a)
    c = x.view(2, 3)
    c[0] = c[1]
    return a, b, c, x.sum()


@stranger(lambda: (rand(3, 4), rand(3, 4, seed=1)))
def outputs_given(x, y):
    torch.add(x, y, out=y)
    torch.mul(x, 2, out=x)
    buffer = torch.empty(0)
    torch.cat([x, y], out=buffer)
    return buffer, y


@stranger(lambda: (rand(3, grad=True),), lambda: (rand(5, grad=True),))
def write_to_a_copy(x):
    y = x.clone()
    y[y < 0] = 0
    z = y.detach()
    z += 1
    return y, z, y.data_ptr() == z.data_ptr()


@stranger(lambda: (rand(3, 4, grad=True),))
def gradients_through_writes(x):
    y = torch.zeros(4, 5)
    y[:3, :4] = x
    y[3] = y[0] * 2
    y[:, 4] += y[:, 0]
    y.transpose(0, 1)[1].mul_(3)
    return y


@stranger(lambda: (rand(3),))
def same_object_twice(x):
    return x, x, [x, x[:]], {"x": x, "view": x.view(-1)}, (x + 0,) * 2


@stranger(
    lambda: (lambda t: (t, t))(rand(4)),
    lambda: (rand(4), rand(4, seed=1)),
    lambda: (lambda t: (t, t[:]))(rand(4)),
)
def maybe_one_argument(a, b):
    a.add_(1)
    return a * b, a is b


@stranger(lambda: (lambda t: (t[:3], t[1:4]))(rand(6)), lambda: (lambda t: (t[:3], t[3:]))(rand(6)))
def overlapping_arguments(a, b):
    a.mul_(2)
    b.add_(a)
    return a, b, (a * b).sum()


@stranger(lambda: (rand(1, 4).expand(3, 4),), lambda: (rand(3, 4),))
def expanded_argument(x):
    y = x.contiguous()
    y[0] = 1
    return y, x.sum(), x.stride(), x.clone().stride()


@stranger(lambda: (rand(4, dtype=torch.complex64),))
def write_through_real_and_imaginary(z):
    z.real.mul_(2)
    z.imag[1:] = 0
    torch.view_as_real(z)[0] = 5
    return z, z.conj(), z.conj().imag


@stranger(lambda: (rand(8),))
def bits_of_floats(x):
    y = x.view(torch.int32)
    signs = y < 0
    (x.view(torch.int32)).bitwise_and_(0x7FFFFFFF)
    return x, signs, x.view(torch.uint8).shape


@stranger(lambda: (rand(4, 4),))
def diagonals(x):
    x.diagonal().fill_(0)
    x.fill_diagonal_(3.0)
    torch.diagonal(x, 1).copy_(torch.arange(3))
    return x.diag(), x.trace(), x.tril(-1)


@stranger(lambda: (rand(5), torch.tensor([0, 0, 3])), lambda: (rand(5), torch.tensor([4, 4, 4])))
def repeated_indices(x, i):
    y = x.clone()
    y[i] += 1
    z = x.clone().index_put_((i,), torch.ones(3), accumulate=True)
    w = x.clone().index_add_(0, i, torch.ones(3))
    return y, z, w


@stranger(lambda: (rand(6),))
def resized_and_reshaped(x):
    y = x.clone()
    y.unsqueeze_(0)
    y.t_()
    z = y.squeeze().view(2, 3)
    z.transpose_(0, 1)
    return y, z, z.is_contiguous()


@stranger(lambda: ([rand(2), rand(2, seed=1)],), lambda: ([rand(2)],))
def list_of_tensors_changed(tensors):
    for t in tensors:
        t.mul_(2)
    tensors.append(tensors[0] + 1)
    tensors[0] = tensors[-1]
    return sum(tensors)


@stranger(lambda: ({"a": rand(2), "b": rand(2, seed=1)},))
def dict_of_tensors_changed(tree):
    tree["a"].add_(tree["b"])
    tree["c"] = tree.pop("b") * 2
    return {k: v.sum() for k, v in tree.items()}


@made(lambda: (rand(3),), lambda: (rand(3, seed=2),), lambda: (rand(3, seed=3),))
def ring_buffer():
    buffer, state = torch.zeros(2, 3), {"at": 0}

    def push(x):
        buffer[state["at"] % 2] = x
        state["at"] += 1
        return buffer.mean(0), buffer[state["at"] % 2]

    return push, (buffer, state)


@made(lambda: (rand(2, 3),), lambda: (rand(2, 3, seed=1),), lambda: (rand(1, 3, seed=2),))
def growing_cache():
    cache = {}

    def step(x):
        cache["k"] = torch.cat([cache["k"], x]) if "k" in cache else x
        cache.setdefault("sizes", []).append(cache["k"].shape[0])
        return cache["k"].mean(0), len(cache["sizes"])

    return step, cache


@stranger(lambda: (rand(3, 3),))
def numpy_shares_memory(x):
    array = x.numpy()
    array[0, 0] = 7
    x[1, 1] = 8
    y = torch.from_numpy(array)
    y.add_(1)
    return x, float(array.sum()), y is x


@stranger(lambda: (rand(2, 3, 4),))
def windows_by_strides(x):
    y = x.clone()
    w = y.as_strided((2, 2), (12, 5), 1)
    w.zero_()
    return y, w, x.as_strided((3,), (2,)), torch.as_strided(x[1], (2, 2), (4, 1))


@stranger(
    lambda: (rand(4), rand(4, seed=1) > 0), lambda: (rand(4), torch.zeros(4, dtype=torch.bool))
)
def masked_writes(x, mask):
    x[mask] = 0
    x.masked_fill_(~mask, 2)
    x.masked_scatter_(mask, torch.arange(4.0))
    torch.where(mask, x, -x, out=x)
    return x, x[mask]


@stranger(lambda: (rand(3, 4, grad=True),))
def leaf_changed_without_gradients(w):
    loss = (w * 2).sum()
    with torch.no_grad():
        w -= 0.1 * torch.ones_like(w)
        w.clamp_(-1, 1)
    return loss, (w**2).sum()


@stranger(lambda: (rand(3, 4),))
def flips_and_rolls(x):
    y = x.flip(0)
    y[0] = 9
    z = x.roll(1, 1)
    z[:, 0] = y[:, 0]
    return x, y, z, x.rot90(), torch.fliplr(x)


@stranger(lambda: (rand(2, 3),), lambda: (rand(2, 3).half(),))
def conversions_that_may_alias(x):
    a, b, c = x.float(), x.to(torch.float32), x.contiguous()
    a += 1
    return x, a is x, b, c, x.to(x.dtype, copy=True), x.reshape(-1), x.ravel(), x.flatten()


@stranger(lambda: (rand(4, 4),))
def writes_between_reads(x):
    before = x.sum()
    row = x[1]
    x[1] = 0
    after = row.sum()
    x.t()[2] = row
    return before, after, x, row


@stranger(lambda: (rand(3, 4), rand(4)))
def augmented_attributes(x, y):
    class Holder:
        pass

    h = Holder()
    h.t = x
    h.t += y
    h.u = h.t[0]
    h.u *= 0
    return x, h.t is x, h.u


@stranger(lambda: (rand(2, 5),))
def split_and_write(x):
    left, right = x.split([2, 3], dim=1)
    left = left + 0
    left.zero_()
    parts = list(x.unbind(0))
    parts[0] = parts[0] * 2
    return torch.stack(parts), left, right.storage_offset()


@stranger(lambda: (rand(6, grad=True),))
def checkpointed(x):
    from torch.utils.checkpoint import checkpoint

    return checkpoint(lambda t: (t.sin() * t).exp(), x, use_reentrant=False).sum()


@stranger(lambda: (rand(3, 5, 4).transpose(0, 2),), lambda: (rand(2, 4, 6, 8).permute(0, 2, 3, 1),))
def layouts_survive(x):
    return (
        x * 2,
        x + x.mT.mT,
        torch.relu(x),
        x.sum(1),
        x.softmax(-1),
        x.clone(),
        torch.cat([x, x]),
        torch.stack([x, x]),
        x.to(torch.float64),
        x > 0,
    )


@stranger(lambda: (rand(4, grad=True),))
def backward_again(x):
    return x + 1, x.reshape(2, 2)


@stranger(lambda: (rand(4, 6, 8).mT,), lambda: (rand(4, 6, 8, grad=True).mT,))
def pooling_of_a_transposed_tensor(x):
    pool = torch.nn.functional.max_pool1d
    return (
        pool(x, 2),
        torch.max_pool1d(x, 3, 1),
        pool(x[0], kernel_size=2),
        pool(x, 2, return_indices=True),
    )


@stranger(lambda: (rand(5, 5),), lambda: (rand(5, 5).mT,))
def new_dimensions_beside_indices(x):
    rows = torch.tensor([0, 2, -1])
    return (
        x[:, None, rows],
        x[rows, None],
        x[:, rows, None],
        x[None, :, None, rows],
        x[:, None, :, None][:, :, rows],
    )


@stranger(lambda: (rand(4, 5).abs() + 1,), lambda: (rand(4, 5, seed=2).abs() + 1,))
def divided_by_its_own_column(x):
    x /= x[:, :1]
    return x


@stranger(lambda: (torch.arange(12.0),), lambda: (torch.arange(7.0),))
def writes_over_what_is_read(x):
    x[1:] = x[:-1]
    x.unfold(0, 3, 1).mul_(2)
    y = x.view(-1, 1)
    torch.mul(y[:, :1], 2, out=y)
    return x


@stranger(lambda: (rand(4, 1),), lambda: (rand(1, 4).long(),), lambda: (rand(0, 3),))
def strides_of_single_rows(x):
    return (
        torch.isfinite(x.mT.long()),
        torch.isinf(x.mT.long()),
        torch.nan_to_num(x.mT),
        torch.ones_like(x.mT),
    )


@stranger(
    lambda: (torch.arange(12.0)[::2].requires_grad_(),),
    lambda: (rand(5, dtype=torch.complex64).conj().imag.detach().requires_grad_(),),
)
def data_with_gaps_written(x):
    x.data.mul_(2)
    return torch.nan_to_num(x), x.sin()
