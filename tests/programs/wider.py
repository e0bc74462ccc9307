"""Statements of the second generation of random programs: families the first does not know.

Seeds from ``FIRST`` on draw from them; programs of smaller seeds are what they were, so that
lists of seeds stay true.
"""

from __future__ import annotations

from typing import Final

FIRST: Final = 1_000_000


def _statements(text: str) -> list[str]:
    """The statements of a table: rows of them, with bars between."""
    return text.replace("\n", "|").split("|")


_FOREACH: Final = _statements(
    """\
{v} = torch._foreach_add([{x}, {y}], 1.5)[0]|{v} = torch._foreach_mul([{x}, {y}], [{y}, {x}])[1]
torch._foreach_mul_([{x}, {y}], 2)|torch._foreach_add_([{x}], [{y}], alpha=0.5)
{v} = torch._foreach_norm([{x}, {y}])[1]|torch._foreach_copy_([{x}], [{y}])
{v} = torch._foreach_lerp([{x}], [{y}], 0.25)[0]|torch._foreach_zero_([{x}])
{v} = torch._foreach_sqrt([{x}])[0]|torch._foreach_addcmul_([{x}], [{y}], [{z}], 0.5)
torch._foreach_clamp_min_([{x}, {y}], 0)|{v} = torch._foreach_maximum([{x}], [{y}])[0]
{v} = torch._foreach_pow([{x}], 2)[0]|torch._foreach_neg_([{x}, {y}])"""
)
_LINALG: Final = _statements(
    """\
{v} = torch.linalg.det({x})|{v} = torch.linalg.solve({x}, {y})
{v} = torch.linalg.qr({x})[1].abs()|{v} = torch.linalg.svdvals({x})
{v} = torch.linalg.slogdet({x})[1]|{v} = torch.linalg.matrix_power({x}, 3)
{v} = torch.linalg.matrix_exp({x})|{v} = torch.linalg.vector_norm({x}, 3, {i})
{v} = torch.linalg.matrix_norm({x}, 'nuc')|{v} = torch.linalg.pinv({x})
{v} = torch.linalg.eigvalsh({x} + {x}.mH)|{v} = torch.linalg.multi_dot([{x}, {x}.mT, {x}])
{v} = torch.linalg.solve_triangular({x}.tril() + 3 * torch.eye({x}.shape[-1]), {x}, upper=False)
{v} = torch.linalg.cross({x}, {y}, dim={i})|{v} = torch.baddbmm({x}, {y}, {y}.mT)
{v} = torch.mv({x}, {y})|{v} = torch.dot({x}, {y})|{v} = torch.vdot({x}, {y})
{v} = torch.inner({x}, {y})|{v} = torch.chain_matmul({x}, {x}.mT)
{v} = torch.triangular_solve({x}, {x})[0]"""
)
_LOSSES: Final = _statements(
    """\
{v} = F.l1_loss({x}, {y})|{v} = F.smooth_l1_loss({x}, {y}, beta=0.5, reduction='none')
{v} = F.huber_loss({x}, {y}, delta=0.7)
{v} = F.kl_div({x}.log_softmax(-1), {y}.softmax(-1), reduction='batchmean')
{v} = F.nll_loss({x}.log_softmax(1), torch.ones({x}.shape[0], dtype=torch.int64))
{v} = F.cross_entropy({x}, torch.zeros({x}.shape[0], dtype=torch.int64), label_smoothing=0.1, \
ignore_index=1)
{v} = F.cross_entropy({x}, {y}.softmax(1))
{v} = F.binary_cross_entropy_with_logits({x}, {y}.sigmoid(), pos_weight={z}.abs())
{v} = F.binary_cross_entropy({x}.sigmoid(), {y}.sigmoid())
{v} = F.soft_margin_loss({x}, {y}.sign())|{v} = F.poisson_nll_loss({x}, {y}.abs(), full=True)
{v} = F.gaussian_nll_loss({x}, {y}, {z}.abs() + 0.1)
{v} = F.hinge_embedding_loss({x}, {y}.sign())|{v} = F.cosine_similarity({x}, {y}, dim={i})
{v} = F.margin_ranking_loss({x}, {y}, {z}.sign(), margin=0.2)
{v} = F.triplet_margin_loss({x}, {y}, {z})
{v} = F.cosine_embedding_loss({x}, {y}, {x}[:, 0].sign())
{v} = F.multi_margin_loss({x}, torch.zeros({x}.shape[0], dtype=torch.int64))
{v} = F.pairwise_distance({x}, {y})|{v} = F.pdist({x})"""
)
_POOLS: Final = _statements(
    """\
{v} = F.avg_pool2d({x}, 2, 1, 1, count_include_pad=False)|{v} = F.max_pool2d({x}, 2, 1, 1)
{v} = F.max_pool2d({x}, 2, return_indices=True)[1]|{v} = F.adaptive_avg_pool2d({x}, 2)
{v} = F.adaptive_max_pool1d({x}, 2)|{v} = F.lp_pool1d({x}, 2, 2)
{v} = F.avg_pool1d({x}, 3, 2, 1, ceil_mode=True)|{v} = F.unfold({x}, 2)
{v} = F.fold({x}, (3, 3), 2)|{v} = F.pixel_shuffle({x}, 2)
{v} = F.interpolate({x}, size=7, mode='linear', align_corners=True)
{v} = F.interpolate({x}, scale_factor=1.5, mode='bilinear')
{v} = F.interpolate({x}, size=(3, 7), mode='bicubic')|{v} = F.pad({x}, (1, 1), mode='reflect')
{v} = F.pad({x}, (2, 1), mode='circular')|{v} = F.pad({x}, (1, 0), mode='replicate')
{v} = F.group_norm({x}, 1)|{v} = F.instance_norm({x})|{v} = F.rms_norm({x}, {x}.shape[-1:])
{v} = F.local_response_norm({x}, 2)
{v} = F.conv2d({x}, torch.ones(2, {x}.shape[1], 2, 2, dtype={x}.dtype), padding=1)
{v} = F.conv_transpose1d({x}, torch.ones({x}.shape[1], 2, 2, dtype={x}.dtype), stride=2)
{v} = F.max_unpool1d(*F.max_pool1d({x}, 2, return_indices=True), 2)
{v} = F.channel_shuffle({x}, 1)
{v} = F.grid_sample({x}, torch.linspace(-1.2, 1.2, 12).view(1, 2, 3, 2).expand({x}.shape[0], 2, \
3, 2), align_corners=False)"""
)
_CELLS: Final = _statements(
    """\
{v} = torch.lstm_cell({x}, ({x}, {x}), torch.ones(4 * {x}.shape[-1], {x}.shape[-1]) / 4, \
torch.ones(4 * {x}.shape[-1], {x}.shape[-1]) / 5)[1]
{v} = torch.rnn_tanh_cell({x}, {x}, {x}.new_ones({x}.shape[-1], {x}.shape[-1]), \
{x}.new_ones({x}.shape[-1], {x}.shape[-1]))
{v} = F.glu({x}, {i})|{v} = F.prelu({x}, torch.full((1,), 0.25, dtype={x}.dtype))
{v} = F.hardtanh({x}, -0.5, 0.7)|{v} = F.hardswish({x})|{v} = F.mish({x})|{v} = F.celu({x}, 0.7)
{v} = F.selu({x})|{v} = F.logsigmoid({x})|{v} = F.softshrink({x}, 0.3)|{v} = F.hardshrink({x})
{v} = F.tanhshrink({x})|{v} = F.threshold({x}, 0.1, 2)|{v} = F.softmin({x}, dim={i})
{v} = F.leaky_relu({x}, -0.1)|{v} = F.gelu({x}, approximate='tanh')|F.elu_({x})
F.leaky_relu_({x}, 0.2)|F.hardtanh_({x})|F.threshold_({x}, 0, 1)|{v} = F.relu6({x})
{v} = F.hardsigmoid({x})|{v} = F.rrelu({x})"""
)
_DRAWS: Final = _statements(
    """\
{v} = torch.rand({x}.shape, generator=torch.Generator().manual_seed(3)) * {x}
{v} = {x} + torch.rand_like({x}) * 0
{v} = torch.randn(3, generator=torch.Generator().manual_seed(1))
{v} = torch.randperm(5, generator=torch.Generator().manual_seed(2)) * 1
{v} = torch.bernoulli({x}.sigmoid() * 0)|{v} = F.dropout({x}, 1.0)
{v} = torch.empty_like({x}).fill_(2).mul_({y})"""
)
_PLACES: Final = _statements(
    """\
{x}.scatter_add_({i}, torch.zeros_like({x}, dtype=torch.int64), {x} * 1)
{v} = {x}.scatter_reduce({i}, torch.zeros_like({x}, dtype=torch.int64), {y}, 'sum')
{v} = {x}.scatter_reduce({i}, torch.zeros_like({x}, dtype=torch.int64), {y}, 'mean', \
include_self=False)
{v} = {x}.scatter_reduce({i}, torch.zeros_like({x}, dtype=torch.int64), {y}, 'prod')
{v} = {x}.index_add({i}, torch.tensor([0, 0]), {x}[:2], alpha=2)
{v} = {x}.index_reduce(0, torch.tensor([0, 0]), {x}[:2], 'amax')
{v} = {x}.index_put((torch.tensor([0, 0, -1]),), {y}, accumulate=True)
{v} = {x}[torch.tensor([0, 0]), ..., torch.tensor([-1, 0])]
{v} = {x}[:, torch.tensor([[0, 0], [-1, 0]])]|{v} = {x}[torch.tensor([True, False, True])]
{v} = torch.take_along_dim({x}, {x}.argsort({i}), {i})
{v} = {x}.index_copy(0, torch.tensor([1, 0]), {x}[:2] * 2)|{x}[torch.tensor([0, -1])] += 1
{x}[torch.tensor([0, 0])] *= 2|{v} = {x}.repeat_interleave(2, {i})
{v} = {x}.repeat_interleave(torch.tensor([2]), 0)|{v} = torch.tril_indices(3, 3) * {x}.dim()
{v} = torch.meshgrid({x}, {y}, indexing='xy')[0]|{v} = torch.cartesian_prod({x}, {x})
{v} = {x}.rot90()|{v} = {x}.fliplr()|{v} = {x}.unfold(-1, 2, 2).sum(-1)
{v} = torch.cumulative_trapezoid({x})|{v} = torch.gradient({x})[0]|{v} = torch.msort({x})
{v} = {x}.kthvalue(1)[0]|{v} = {x}.unique_consecutive()"""
)
_NUMBERS: Final = _statements(
    """\
{v} = {x} + True|{v} = {x} * 2.5|{v} = 3 - {x}|{v} = {x} / 3|{v} = {x} // 2.5|{v} = {x} + 1j
{v} = {x} * (1 - 2j)|{v} = 7 // {x}|{v} = {x} ** 0.5|{v} = {x} ** -1|{v} = 2.0 ** {x}
{v} = {x} % -2|{v} = {x} % 1.5|{v} = -7 % {x}|{v} = {x} << 1|{v} = {x} >> 1|{v} = {x} & 3
{v} = {x} ^ 1|{v} = {x} + float('inf')|{v} = {x} * 1e300|{v} = {x} + 2 ** 40
{v} = torch.where({x} > 0, 1.5, 2)|{v} = torch.where({x} > 0, {x}, 2.5)|{v} = {x} > 0.5
{v} = {x} == True|{v} = torch.add({x}, {y}, alpha=3)|{v} = torch.rsub({x}, 2, alpha=2)
{v} = torch.result_type({x}, 1.0) == {x}.dtype|{v} = {x} + torch.tensor(2.5)
{v} = {x} * torch.tensor(3)|{v} = {x} + torch.tensor(1, dtype=torch.float64)
{v} = torch.tensor(2j) * {x}|{v} = torch.clamp({x}, max=0.5)
{v} = torch.maximum({x}, torch.tensor(0.5))|{v} = torch.full((2,), 3) * {x}[..., :2]|{x} += 1.5
{x} *= True|{x} -= 2|{x} //= 2|{x} /= 2|{x} **= 2|{x} %= 3|{x} &= 3|{x} <<= 1"""
)
_COMPLEX: Final = _statements(
    """\
{v} = torch.complex({x}.float(), {y}.float()).conj() * {z}|{v} = {x}.to(torch.complex64).mH
{v} = ({x} * 1j).abs()|{v} = ({x} + 1j).angle()
{v} = torch.view_as_complex(torch.stack([{x}, {x}], -1))|{v} = torch.view_as_real({x} * 1j)
{v} = ({x} * (1 + 1j)).imag|{v} = ({x} * (2 - 1j)).conj().real
{v} = torch.fft.ifft({x}, dim={i})|{v} = torch.fft.irfft({x})|{v} = torch.fft.fft2({x}).real
{v} = torch.fft.fftshift({x})|{v} = ({x} * 1j) @ {y}.mH|{v} = torch.exp({x} * 1j)
{v} = torch.sqrt({x} + 0j)|{v} = torch.log({x} + 0j).imag|{v} = ({x} + 0j) ** 2
{v} = torch.polar({x}.abs(), {x})|{v} = ({x} + 1j).reciprocal()
{v} = torch.linalg.norm({x} + 1j)|{v} = ({x} + 1j).prod({i})|{v} = ({x} - 2j).cumsum({i})
{v} = torch.sgn({x} - 1j)"""
)

TABLES: Final = (_FOREACH, _LINALG, _LOSSES, _POOLS, _CELLS, _DRAWS, _PLACES, _NUMBERS, _COMPLEX)
