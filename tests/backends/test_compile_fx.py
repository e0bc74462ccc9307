"""compile_fx by hand, with passes between the stages."""

import torch
from torch import nn

import argand


class Program(nn.Module):
    def forward(self, x, y):
        return {"a": torch.relu(x @ y), "b": [x.sum()]}


def test_output_structure_is_kept():
    gm = torch.fx.symbolic_trace(Program())
    x, y = torch.randn(3, 4), torch.randn(4, 2)
    got = argand.compile_fx(gm, [x, y])(x, y)
    expected = Program()(x, y)
    assert torch.allclose(got["a"], expected["a"], atol=1e-5)
    assert torch.allclose(got["b"][0], expected["b"][0], atol=1e-5)


def test_passes_see_their_graphs():
    seen = []

    def spy(stage):
        def look(gm):
            targets = [str(n.target) for n in gm.graph.nodes if n.op == "call_function"]
            seen.append((stage, targets))
            return gm

        return look

    gm = torch.fx.symbolic_trace(lambda x: (torch.relu(x) * 2,))
    x = torch.randn(5, requires_grad=True)
    compiled = argand.compile_fx(
        gm, [x], pre_grad_pass=spy("pre"), joint_pass=spy("joint"), post_partition_pass=spy("post")
    )
    compiled(x)[0].sum().backward()
    assert [stage for stage, _ in seen] == ["pre", "joint", "post", "post"]
    assert any("aten." in target for target in seen[1][1])
    assert torch.equal(x.grad, (x > 0) * 2.0)


def test_a_pass_may_change_the_graph():
    def doubled(gm):
        for node in gm.graph.nodes:
            if node.target is torch.relu:
                node.target = torch.sigmoid
        gm.recompile()
        return gm

    gm = torch.fx.symbolic_trace(lambda x: (torch.relu(x),))
    x = torch.randn(5)
    compiled = argand.compile_fx(gm, [x], pre_grad_pass=doubled)
    assert torch.allclose(compiled(x)[0], x.sigmoid(), atol=1e-6)


def test_inner_compile_is_used():
    graphs = []

    def inner(gm, inputs):
        graphs.append(gm)
        return gm.forward

    gm = torch.fx.symbolic_trace(lambda x: (x.sin(),))
    x = torch.randn(3)
    assert torch.equal(argand.compile_fx(gm, [x], inner_compile=inner)(x)[0], x.sin())
    assert len(graphs) == 1
