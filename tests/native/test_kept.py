"""Packed weights that are kept: never stale, however the weight was changed, and shared by threads and forks."""

import os
import threading

import pytest
import torch
from torch import nn

import argand

OPTIONS = {"strict": True, "cache": False, "measure": False}


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(16, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 64, 3)
    ).eval()


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max()))


def raw(weight):
    return memoryview(weight.detach().numpy()).cast("B")


def optimize(model):
    with torch.enable_grad():
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        model(torch.randn(1, 16, 8, 8)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def read_into(model):
    """A system call writes: it must neither fail on a protected page nor stay unseen."""
    weight = model[3].weight
    reader, writer = os.pipe()
    os.write(writer, torch.randn(1024).numpy().tobytes())
    with os.fdopen(reader, "rb", buffering=0) as file:
        assert file.readinto(raw(weight)[8192:12288]) == 4096
    os.close(writer)


CHANGES = {
    "in place": lambda m: m[3].weight.mul_(1.5),
    "data": lambda m: m[3].weight.data.neg_(),
    "one number through data": lambda m: m[3].weight.data.view(-1).__setitem__(20_000, 3.0),
    "numpy": lambda m: m[3].weight.detach().numpy().__setitem__((5, 6, 1, 1), 7.0),
    "dlpack": lambda m: torch.from_dlpack(m[3].weight.detach()).mul_(0.5),
    "copy_": lambda m: m[3].weight.copy_(torch.randn(64, 64, 3, 3)),
    "new data": lambda m: setattr(m[3].weight, "data", torch.randn(64, 64, 3, 3)),
    "another parameter": lambda m: setattr(m[3], "weight", nn.Parameter(torch.randn(64, 64, 3, 3))),
    "load_state_dict": lambda m: m.load_state_dict({k: v * 1.5 for k, v in m.state_dict().items()}),
    "assigned state": lambda m: m.load_state_dict(
        {k: v * 1.5 for k, v in m.state_dict().items()}, assign=True
    ),
    "optimizer": optimize,
    "system call": read_into,
    "first element": lambda m: m[3].weight.data.view(-1).__setitem__(0, 3.0),
    "last element": lambda m: m[3].weight.data.view(-1).__setitem__(-1, 3.0),
    "norm": lambda m: m[1].running_var.data.mul_(2),
    "bias": lambda m: m[3].bias.data.add_(1),
    "resized": lambda m: m[3].weight.data.set_(torch.randn(64, 64, 3, 3)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_change_is_seen_at_the_next_call(change):
    model, x = network(), torch.randn(1, 16, 12, 12)
    run = argand.compile(model, options=OPTIONS)
    with torch.no_grad():
        for _ in range(7):  # beyond the patience with weights that keep changing
            for _ in range(2):
                close(run(x), model(x))
            change(model)
            close(run(x), model(x))


def read_vector(model):
    """A system call writes into a vector that shares its page with others."""
    reader, writer = os.pipe()
    os.write(writer, torch.rand(4).numpy().tobytes())
    with os.fdopen(reader, "rb", buffering=0) as file:
        assert file.readinto(raw(model[1].running_var)[16:32]) == 16
    os.close(writer)


VECTOR_CHANGES = {
    "in place": lambda m: m[1].weight.mul_(1.5),
    "first number": lambda m: m[1].weight.data.__setitem__(0, float(m[1].weight[0]) + 3),
    "last number": lambda m: m[1].running_mean.data.__setitem__(
        -1, float(m[1].running_mean[-1]) - 3
    ),
    "numpy": lambda m: m[1].bias.detach().numpy().__iadd__(1),
    "dlpack": lambda m: torch.from_dlpack(m[1].running_var).mul_(2),
    "bytes": lambda m: raw(m[1].running_var).__setitem__(
        slice(8, 12), torch.rand(1).numpy().tobytes()
    ),
    "system call": read_vector,
    "another": lambda m: setattr(m[1], "weight", nn.Parameter(torch.randn(64))),
}


@pytest.mark.parametrize("change", VECTOR_CHANGES.values(), ids=VECTOR_CHANGES)
def test_changes_of_small_weights_are_seen_after_many_calls(change):
    """Vectors are watched by the pages they share with others once a program was called some times."""
    model, x = network(), torch.randn(1, 16, 12, 12)
    run = argand.compile(model, options=OPTIONS)
    with torch.no_grad():
        for calm in (8, 1, 5, 40):
            for _ in range(calm):
                run(x)
            close(run(x), model(x))
            before = model(x)
            change(model)
            assert not torch.equal(model(x), before)
            close(run(x), model(x))


def test_a_small_weight_beside_memory_that_changes_at_each_call():
    """Its page is written all the time: its bytes are compared, and it is looked at again later."""
    model, x = network(), torch.randn(1, 16, 12, 12)
    page = torch.ones(4096)
    model[1].weight.data = page[1000:1064]
    run = argand.compile(model, options=OPTIONS)
    with torch.no_grad():
        for k in range(200):
            page[900 + k % 90] = k
            run(x)
            if k % 7 == 0 or k > 190:
                page[1000 + k % 64] += 1
                close(run(x), model(x))
        for _ in range(200):
            run(x)
        page[1063] += 1
        close(run(x), model(x))


def test_two_programs_that_watch_the_same_vector():
    """Each protects the page of the vector again after a write, and tells the other."""
    model = network()
    images = [torch.randn(1, 16, n, n) for n in (12, 15)]
    runs = [argand.compile(model, options=OPTIONS, dynamic=False) for _ in images]
    with torch.no_grad():
        for order in (1, -1, 1, -1):
            for _ in range(8):
                for run, x in zip(runs, images, strict=True):
                    run(x)
            model[1].bias.data[5] += 1
            for run, x in list(zip(runs, images, strict=True))[::order]:
                close(run(x), model(x))


def test_weights_in_shared_memory_changed_by_another_process():
    model, x = network(), torch.randn(1, 16, 12, 12)
    model.share_memory()
    run = argand.compile(model, options=OPTIONS)
    with torch.no_grad():
        run(x), run(x)
        child = os.fork()
        if child == 0:
            raw(model[3].weight)[4096:8192] = bytes(4096)
            os._exit(0)
        os.waitpid(child, 0)
        close(run(x), model(x))


def test_a_fork_watches_its_own_memory():
    model, x = network(), torch.randn(1, 16, 12, 12)
    run = argand.compile(model, options=OPTIONS)
    with torch.no_grad():
        expected = run(x).clone()
        child = os.fork()
        if child == 0:
            torch.set_num_threads(1)
            raw(model[3].weight)[4096:8192] = bytes(4096)
            changed = run(x)
            good = torch.allclose(changed, model(x), 1e-4, 1e-4) and not torch.equal(
                changed, expected
            )
            os._exit(0 if good else 1)
        assert os.waitpid(child, 0)[1] == 0
        torch.testing.assert_close(run(x), expected)
        raw(model[3].weight)[4096:8192] = bytes(4096)
        close(run(x), model(x))


def test_two_programs_that_watch_the_same_weights():
    """A page has one note for both: who sees a write first tells the other."""
    model = network()
    images = [torch.randn(1, 16, n, n) for n in (12, 15)]
    runs = [argand.compile(model, options=OPTIONS, dynamic=False) for _ in images]
    with torch.no_grad():
        for _ in range(4):
            for run, x in zip(runs, images, strict=True):
                run(x)
                close(run(x), model(x))
            raw(model[3].weight)[40_000:40_004] = torch.randn(1).numpy().tobytes()
            for run, x in zip(runs, images, strict=True):
                close(run(x), model(x))


def test_threads_use_what_they_began_with():
    model, x = network(), torch.randn(1, 16, 12, 12)
    run = argand.compile(model, options=OPTIONS)
    wrong = []
    with torch.no_grad():
        expected = {}
        state = [p.clone() for p in (model[3].weight, model[3].weight * 2)]
        for weight in state:
            model[3].weight.copy_(weight)
            expected[len(expected)] = run(x).clone()

    def work():
        with torch.no_grad():
            for _ in range(50):
                result = run(x)
                if result.shape != expected[0].shape:
                    wrong.append(result)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    with torch.no_grad():
        for k in range(20):
            model[3].weight.copy_(state[k % 2])
    for thread in threads:
        thread.join()
    assert not wrong
    with torch.no_grad():
        torch.testing.assert_close(run(x), expected[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("period", [2, 3])
def test_weights_that_take_turns(period):
    """After some changes nobody looks for a while; who looks again meets contents that were known."""
    model, x = network(), torch.randn(1, 16, 12, 12)
    run = argand.compile(model, options=OPTIONS)
    weights = [torch.randn(64, 64, 3, 3) for _ in range(period)]
    with torch.no_grad():
        for k in range(40):
            model[3].weight.copy_(weights[k % period])
            close(run(x), model(x))


def test_weights_that_another_thread_swaps_while_they_are_packed():
    """Hashed as ours, packed as theirs, ours again when it is looked at next."""
    torch.manual_seed(0)
    model, x = nn.Conv2d(128, 128, 3).eval(), torch.randn(1, 128, 6, 6)
    ours, theirs = model.weight.detach().clone(), torch.randn(128, 128, 3, 3)
    with torch.no_grad():
        expected = model(x)
    for _ in range(15):
        argand.reset()
        run = argand.compile(model, options=OPTIONS)
        stop = threading.Event()

        def swap(stop=stop):
            while not stop.is_set():
                model.weight.data.copy_(theirs)
                model.weight.data.copy_(ours)

        thread = threading.Thread(target=swap)
        with torch.no_grad():
            run(x)
            thread.start()
            for _ in range(4):
                run(x)
            stop.set()
            thread.join()
            close(run(x), expected)


def test_frozen_weights_are_compared_by_place_alone():
    model, x = network(), torch.randn(1, 16, 12, 12)
    run = argand.compile(model, options={**OPTIONS, "freeze": True})
    with torch.no_grad():
        expected = run(x).clone()
        model[3].weight.data.mul_(2)
        assert torch.equal(run(x), expected)
        model[3].weight.data = model[3].weight.data.clone()
        close(run(x), model(x))


def test_weights_of_a_file_are_read_again(tmp_path):
    weight = torch.randn(64, 16, 3, 3)
    path = tmp_path / "weights"
    path.write_bytes(weight.numpy().tobytes())
    mapped = torch.from_file(str(path), shared=True, size=weight.numel()).view(64, 16, 3, 3)
    model, x = nn.Conv2d(16, 64, 3, bias=False).eval(), torch.randn(1, 16, 12, 12)
    model.weight = nn.Parameter(mapped)
    run = argand.compile(model, options=OPTIONS)
    with torch.no_grad():
        for factor in (1, 2, 3):
            with open(path, "r+b") as file:
                file.write((weight * factor).numpy().tobytes())
            close(run(x), model(x))
            close(run(x), model(x))
