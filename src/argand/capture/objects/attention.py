"""capture.objects.attention: `torch.nn.attention.flex_attention` in terms of plain operators.

Interpreted in place of torch's functions. Score and mask functions are called once, on index tensors that broadcast
to all scores, where torch maps them over single scores: they are elementwise. So they become part of the graph and
fuse with the softmax, and their gradients are autograd's. What torch refuses raises here too; eager then says why.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

_FEW_BLOCKS = 4
_NO_BLOCKS = 1 << 30  # the block size of a mask that torch makes when there is none


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Any = None,
    block_mask: Any = None,
    scale: Any = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    *,
    return_aux: Any = None,
) -> Any:
    """Attention with a function of scores and a mask."""
    check(query, key, value, block_mask, enable_gqa)
    if return_lse and return_aux is not None:
        raise ValueError("Cannot specify both return_lse and return_aux.")
    key, value = repeated(key, query), repeated(value, query)
    if scale is None:
        scale = 1.0 / math.sqrt(query.size(-1))
    wants_lse = return_lse or (return_aux is not None and return_aux.lse)
    if is_worth_blocks(query, key, value, block_mask):
        out, lse, top = by_blocks(query, key, value, score_mod, block_mask, scale)
    else:
        out, lse, top = at_once(query, key, value, score_mod, block_mask, scale, wants_lse)
    out = laid_out_like(out, query)
    if return_aux is not None:
        # only who has imported that module calls this
        return out, torch.nn.attention.flex_attention.AuxOutput(
            lse=lse if wants_lse else None, max_scores=top if return_aux.max_scores else None
        )
    return (out, lse) if return_lse else out


def at_once(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Any,
    block_mask: Any,
    scale: Any,
    wants_lse: bool,
) -> tuple[Tensor, Any, Tensor]:
    """All scores in one matrix: the result, the log of the sum of exponentials if wanted, and the largest scores."""
    scores = masked_scores(query, key, score_mod, block_mask, scale, indices(query, key))
    top = scores.amax(-1, keepdim=True)
    empty = top == -math.inf
    safe = torch.where(empty, 0.0, scores)  # a row without scores has weights of 0, and no gradient
    weights = torch.where(empty, 0.0, torch.softmax(safe, -1))
    out = weights.to(query.dtype) @ value.to(query.dtype)
    lse = (
        torch.where(empty, -math.inf, torch.logsumexp(safe, -1, keepdim=True)).squeeze(-1)
        if wants_lse
        else None
    )
    return out, lse, top.squeeze(-1)


def is_worth_blocks(query: Tensor, key: Tensor, value: Tensor, block_mask: Any) -> bool:
    """Whether scores are computed block by block, without those that are masked as a whole: where nothing is differentiated.

    A backward would keep every block.
    """
    if block_mask is None or block_mask.BLOCK_SIZE[0] == _NO_BLOCKS:
        return False
    if torch.is_grad_enabled() and (
        query.requires_grad or key.requires_grad or value.requires_grad
    ):
        return False
    lengths = query.size(-2), key.size(-2)
    if type(lengths[0]) is not int or type(lengths[1]) is not int:  # open
        return False
    rows, columns = block_mask.BLOCK_SIZE
    if lengths[0] % rows or lengths[1] % columns:
        return False
    return (lengths[0] // rows) * (lengths[1] // columns) >= _FEW_BLOCKS


def ordered_to_dense(num_blocks_in_row: Tensor, col_indices: Tensor, num_cols: int) -> Tensor:
    """Lists of blocks, the first so many of which count, as zeros and ones."""
    listed = torch.arange(col_indices.size(-1)) < num_blocks_in_row.unsqueeze(-1)
    found = (col_indices.unsqueeze(-1) == torch.arange(num_cols)) & listed.unsqueeze(-1)
    return found.any(-2).to(torch.int32)


def used_blocks(counts: Tensor, places: Tensor) -> Tensor:
    """Which blocks of keys each block of queries looks at, in any batch and head."""
    return ordered_to_dense(counts, places, places.size(-1)).bool().any(0).any(0)


def in_blocks(value: Tensor, size: int) -> Tensor:
    """The blocks of a sequence, one after the other; a view."""
    batch, heads, length, width = value.shape
    return value.reshape(batch, heads, length // size, size, width).permute(2, 0, 1, 3, 4)


def by_blocks(
    query: Tensor, key: Tensor, value: Tensor, score_mod: Any, block_mask: Any, scale: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """The same without the matrix of scores: blocks of keys one after the other, and none that is masked as a whole."""
    used = used_blocks(block_mask.kv_num_blocks, block_mask.kv_indices)
    if block_mask.full_kv_num_blocks is not None:
        used = used | used_blocks(block_mask.full_kv_num_blocks, block_mask.full_kv_indices)
    rows, columns = block_mask.BLOCK_SIZE
    precision = torch.float64 if query.dtype == torch.float64 else torch.float32
    keys, values = in_blocks(key, columns), in_blocks(value, columns)
    from_key = torch.arange(0, key.size(2), columns)
    batch, heads = (
        torch.arange(query.size(0)).view(-1, 1, 1, 1),
        torch.arange(query.size(1)).view(1, -1, 1, 1),
    )
    row, column = torch.arange(rows).view(1, 1, -1, 1), torch.arange(columns).view(1, 1, 1, -1)

    def of_queries(given: Any) -> Any:
        part, looks, first = given

        def of_keys(carry: Any, block: Any) -> Any:
            keys, values, wanted, start = block
            places = (batch, heads, row + first, column + start)

            def add(top: Tensor, total: Tensor, out: Tensor) -> tuple[Tensor, Tensor, Tensor]:
                scores = masked_scores(part, keys, score_mod, block_mask, scale, places)
                higher = torch.maximum(top, scores.amax(-1, keepdim=True))
                level = torch.where(higher == -math.inf, 0.0, higher)
                weights, fade = torch.exp(scores - level), torch.exp(top - level)
                return (
                    higher,
                    total * fade + weights.sum(-1, keepdim=True),
                    out * fade + weights @ values.to(precision),
                )

            def leave(top: Tensor, total: Tensor, out: Tensor) -> tuple[Tensor, Tensor, Tensor]:
                return top.clone(), total.clone(), out.clone()

            return list(torch.cond(wanted, add, leave, tuple(carry))), []

        shape = (*part.shape[:3], 1)
        start = [torch.full(shape, -math.inf, dtype=precision), torch.zeros(shape, dtype=precision)]
        start.append(torch.zeros((*part.shape[:3], value.size(-1)), dtype=precision))
        (top, total, out), _ = torch._higher_order_ops.scan(
            of_keys, start, [keys, values, looks, from_key]
        )
        some = torch.where(total == 0, 1.0, total)
        return out / some, torch.where(total == 0, -math.inf, top + torch.log(some)), top.clone()

    blocks = [in_blocks(query, rows), used, torch.arange(0, query.size(2), rows)]
    out, lse, top = torch._higher_order_ops.map(of_queries, blocks)
    out, lse, top = (found.permute(1, 2, 0, 3, 4).flatten(2, 3) for found in (out, lse, top))
    return out.to(query.dtype), lse.squeeze(-1), top.squeeze(-1)


def check(query: Tensor, key: Tensor, value: Tensor, block_mask: Any, enable_gqa: bool) -> None:
    """What torch checks before it computes."""
    if query.dim() != 4 or key.dim() != 4 or value.dim() != 4:
        raise NotImplementedError("NYI: query, key, and value must be 4D tensors")
    if query.dtype != key.dtype or query.dtype != value.dtype:
        raise ValueError("Expected query, key, and value to have the same dtype")
    if query.size(-1) != key.size(-1) or key.size(-2) != value.size(-2):
        raise ValueError("Expect query and key/value to have the same embedding dimension")
    if enable_gqa:
        if query.size(1) % key.size(1) != 0:
            raise ValueError("Expect number of query heads to be a multiple of kv heads for GQA")
    elif query.size(1) != key.size(1):
        raise ValueError("Expect query and key/value to have the same number of heads")
    if query.size(0) != key.size(0) and (block_mask is None or key.size(0) != 1):
        raise ValueError("Expect query and key/value to have the same batch size")
    if block_mask is not None and block_mask.BLOCK_SIZE[0] != _NO_BLOCKS:
        lengths = block_mask.seq_lengths
        if query.size(-2) != lengths[0] or key.size(-2) != lengths[1]:
            raise ValueError("block_mask was created for another length")


def repeated(value: Tensor, query: Tensor) -> Tensor:
    """Keys or values for each head and batch of the queries."""
    batch, heads, length, width = value.shape
    group = query.size(1) // heads
    if group > 1:
        value = (
            value.unsqueeze(2)
            .expand(batch, heads, group, length, width)
            .reshape(batch, -1, length, width)
        )
    return value.expand(query.size(0), -1, -1, -1) if batch != query.size(0) else value


def indices(query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Batch, head, and positions of query and key, each along its own dimension."""
    return (
        torch.arange(query.size(0)).view(-1, 1, 1, 1),
        torch.arange(query.size(1)).view(1, -1, 1, 1),
        torch.arange(query.size(2)).view(1, 1, -1, 1),
        torch.arange(key.size(2)).view(1, 1, 1, -1),
    )


def masked_scores(
    query: Tensor, key: Tensor, score_mod: Any, block_mask: Any, scale: Any, places: Any
) -> Tensor:
    """Scores of queries and keys at these places, as precise as torch has them."""
    precision = torch.float64 if query.dtype == torch.float64 else torch.float32
    scores = (query.to(precision) @ key.to(precision).transpose(-2, -1)) * scale
    if score_mod is not None:
        scores = score_mod(scores, *places)
    if block_mask is not None:
        scores = torch.where(
            block_mask.mask_mod(*places), scores, torch.full((), -math.inf, dtype=precision)
        )
    return scores


def laid_out_like(out: Tensor, query: Tensor) -> Tensor:
    """The result with its dimensions in memory in the order of the query's, the last one innermost."""
    strides = query.stride()
    order = sorted((0, 1, 2), key=lambda dim: -strides[dim])
    if order == [0, 1, 2]:
        return out
    back = [order.index(0), order.index(1), order.index(2), 3]
    return out.permute(*order, 3).contiguous().permute(*back)


def create_mask(mod_fn: Any, B: Any, H: Any, Q_LEN: Any, KV_LEN: Any, device: Any = None) -> Tensor:
    """The mask of a mask function, or of where a score function gives minus infinity."""
    batch, heads = 1 if B is None else B, 1 if H is None else H
    places = (
        torch.arange(batch).view(-1, 1, 1, 1),
        torch.arange(heads).view(1, -1, 1, 1),
        torch.arange(Q_LEN).view(1, 1, -1, 1),
        torch.arange(KV_LEN).view(1, 1, 1, -1),
    )
    if mod_fn.__code__.co_argcount == 5:
        found = ~torch.isneginf(mod_fn(torch.zeros(batch, heads, Q_LEN, KV_LEN), *places))
    else:
        found = mod_fn(*places)
    return found.expand(batch, heads, Q_LEN, KV_LEN).contiguous()
