"""In a fresh process: nothing of torch's own compiler is imported; two processes train under DDP."""

import subprocess
import sys
import textwrap


def run(code):
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


def test_nothing_heavy_is_imported():
    out = run("""
        import sys, torch, torch.fx
        before = set(sys.modules)
        from argand.autograd.aot import compile_with_autograd
        from argand.autograd.partition import min_cut_partition
        from argand.support.options import Options
        model = torch.nn.Sequential(
            torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Dropout(0.1),
            torch.nn.Linear(8, 4))
        names = [name for name, _ in model.named_parameters()]
        def function(x, *parameters):
            w1, b1, g, b, w2, b2 = parameters
            F = torch.nn.functional
            h = F.dropout(F.layer_norm(F.gelu(F.linear(x, w1, b1)), (8,), g, b), 0.1)
            return F.cross_entropy(F.linear(h, w2, b2), torch.zeros(5, dtype=torch.int64))
        graph = torch.fx.Graph()
        inputs = [graph.placeholder(f"x{i}") for i in range(7)]
        graph.output((graph.call_function(function, tuple(inputs)),))
        values = [torch.randn(5, 8), *model.parameters()]
        compiled = compile_with_autograd(
            torch.fx.GraphModule({}, graph), values, fw_compiler=lambda gm, ex: gm,
            partition_fn=min_cut_partition, options=Options(strict=True))
        compiled(*values)[0].backward()
        bad = ("sympy", "torch._dynamo", "torch._inductor", "torch._functorch", "torch._subclasses",
               "torch.fx.experimental", "torch.export")
        print([m for m in set(sys.modules) - before if m.startswith(bad)])
    """)
    assert out.strip() == "[]"


def test_two_processes_train_under_ddp():
    out = run("""
        import os, torch, torch.multiprocessing as mp
        import torch.distributed as dist

        def step(rank, compiled):
            torch.manual_seed(0)
            model = torch.nn.Linear(4, 2)
            ddp = torch.nn.parallel.DistributedDataParallel(model)
            if compiled:
                from argand.autograd.aot import compile_with_autograd
                from argand.support.options import Options
                graph = torch.fx.Graph()
                p = [graph.placeholder(n) for n in ("x", "w", "b")]
                graph.output((graph.call_function(torch.nn.functional.linear, tuple(p)),))
                x = torch.ones(3, 4)
                run = compile_with_autograd(
                    torch.fx.GraphModule({}, graph), [x, model.weight, model.bias],
                    fw_compiler=lambda gm, ex: gm, options=Options(strict=True))
                model.forward = lambda x: run(x, model.weight, model.bias)[0]
            ddp(torch.ones(3, 4) * (rank + 1)).square().sum().backward()
            return model.weight.grad.clone()

        def work(rank):
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29553")
            dist.init_process_group("gloo", rank=rank, world_size=2)
            torch.testing.assert_close(step(rank, True), step(rank, False))
            dist.destroy_process_group()

        if __name__ == "__main__":
            context = mp.get_context("fork")
            workers = [context.Process(target=work, args=(r,)) for r in range(2)]
            [w.start() for w in workers]
            [w.join() for w in workers]
            print([w.exitcode for w in workers])
    """)
    assert out.strip().endswith("[0, 0]")
