"""benchmarks.generate: tokens per second of transformers' models with random weights (``python -m benchmarks.generate --help``).

One token after the other, greedy, through a static cache, by a loop as users of torch.compile write it: the prompt at once, then
one position per call. Engines take turns round by round; each has a model of its own with the same weights. ``read`` is what a
token reads of the weights over the speed at which this machine sums memory in the same run; ``surprise`` is what a quantized
model adds to the log of the perplexity at random text.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

SCHEMES = {"argand int8": "int8", "argand int4": "int4", "argand dynamic": "dynamic_int8"}
OF_TORCH = "argand torch q"  # over the modules of quantize_dynamic
ENGINES = ("eager", "torch.compile", "quantize_dynamic", OF_TORCH, "argand", *SCHEMES)
WIDE = {
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
}
WIDER = {
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 20,
    "num_attention_heads": 16,
}
SIZES = {
    "tiny": {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    },
    "30M": WIDE,
    "300M": WIDER,
}
NAMES = {
    "llama": "LlamaConfig",
    "qwen": "Qwen2Config",
    "gemma": "GemmaConfig",
    "gpt2": "GPT2Config",
}


class Measured(NamedTuple):
    """Seconds of one engine: the first call of each kind, a prompt, and a token after it."""

    first: float
    prompt: float
    token: float
    tokens: tuple[int, ...]


def make_model(name: str, size: str, length: int) -> Any:
    """A model with random weights, equal each time."""
    import transformers

    given = {"vocab_size": 8192, "max_position_embeddings": length, **SIZES[size]}
    if name == "gpt2":
        shape = SIZES[size]
        given = {"vocab_size": 8192, "n_positions": length, "n_embd": shape["hidden_size"]}
        given |= {"n_layer": shape["num_hidden_layers"], "n_head": shape["num_attention_heads"]}
    elif name == "gemma":
        given["head_dim"] = given["hidden_size"] // given["num_attention_heads"]
        # its own number is that of a larger model
        given["num_key_value_heads"] = given["num_attention_heads"]
    elif name == "qwen":
        given["num_key_value_heads"] = given["num_attention_heads"] // 2
    torch.manual_seed(0)
    config = getattr(transformers, NAMES[name])(**given, tie_word_embeddings=False)
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def engine_of(engine: str, model: Any) -> Callable[..., Any]:
    """What calls the model."""
    if engine == "eager":
        return model
    if engine == "torch.compile":
        return torch.compile(model)
    if engine in ("quantize_dynamic", OF_TORCH):
        model = torch.ao.quantization.quantize_dynamic(
            model, {torch.nn.Linear}, dtype=torch.qint8, inplace=True
        )
        if engine == "quantize_dynamic":
            return model
    import argand

    if engine in SCHEMES:
        argand.quantize(model, SCHEMES[engine])
    return argand.compile(model)


def decode(
    model: Any, call: Callable[..., Any], prompt: torch.Tensor, count: int, length: int
) -> Measured:
    """Write ``count`` tokens after a prompt."""
    from transformers import StaticCache

    cache = StaticCache(config=model.config, max_cache_len=length)
    written, times = [], []
    token, position = prompt, torch.arange(prompt.shape[1])
    with torch.no_grad():
        for _ in range(count):
            begin = time.perf_counter()
            logits = call(
                token, past_key_values=cache, position_ids=position[None], use_cache=True
            ).logits
            token = logits[:, -1:].argmax(-1)
            written.append(int(token))
            times.append(time.perf_counter() - begin)
            position = position[-1:] + 1
    typical = sorted(times[2:])[len(times[2:]) // 2]
    return Measured(times[0] + times[1], times[0], typical, tuple(written))


def surprise(call: Callable[..., Any], text: torch.Tensor) -> float:
    """The mean surprise (log of the perplexity) of a model at random text."""
    with torch.no_grad():
        logits = call(text).logits[:, :-1].float()
    return float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten()))


def equality(name: str, size: str, length: int, count: int, seeds: int) -> None:
    """Greedy tokens of the compiled model beside eager's, from prompts of many seeds; ends where they differ."""
    total = length + count + 8
    plain, other = (make_model(name, size, total) for _ in range(2))
    call, same, reached = engine_of("argand", other), 0, []
    for seed in range(seeds):
        prompt = torch.randint(1, 8192, (1, length), generator=torch.Generator().manual_seed(seed))
        wanted, got = (
            decode(model, run, prompt, count, total).tokens
            for model, run in ((plain, plain), (other, call))
        )
        same += wanted == got
        reached.append(
            next((k for k, (a, b) in enumerate(zip(wanted, got, strict=True)) if a != b), count)
        )
    print(
        f"{name:7}{size:>5}{length:5}  {same} of {seeds} seeds equal over {count} tokens, first difference at {min(reached)}"
    )


def read_speed() -> float:
    """Bytes per second of a sum over 256 MB, the best of five."""
    memory, best = torch.ones(64 << 20), 0.0
    for _ in range(5):
        begin = time.perf_counter()
        memory.sum()
        best = max(best, memory.nbytes / (time.perf_counter() - begin))
    return best


def weight_bytes(model: Any) -> int:
    """What one token reads: all weights but the table of tokens, of which it reads a row."""
    table = model.get_input_embeddings().weight
    tensors = {id(t): t for t in (*model.parameters(), *model.buffers())}
    return sum(t.nbytes for t in tensors.values() if t is not table)


def compare(name: str, size: str, length: int, count: int, rounds: int, engines: list[str]) -> None:
    """One row per engine."""
    total = length + count + 8
    models = {engine: make_model(name, size, total) for engine in engines}
    calls = {engine: engine_of(engine, model) for engine, model in models.items()}
    prompt = torch.randint(1, 8192, (1, length))
    first = {engine: decode(models[engine], calls[engine], prompt, 4, total) for engine in engines}
    best: dict[str, Measured] = {}
    for _ in range(rounds):
        for engine in engines:
            found = decode(models[engine], calls[engine], prompt, count, total)
            best[engine] = min(best.get(engine, found), found, key=lambda measured: measured.token)
    speed, eager = read_speed(), best.get("eager")
    text = torch.randint(1, 8192, (4, min(length, 128)), generator=torch.Generator().manual_seed(0))
    plain = surprise(make_model(name, size, total), text)
    for engine in engines:
        seen, begun = best[engine], first[engine].first
        share = weight_bytes(models[engine]) / seen.token / speed
        shown = f"{name:7}{size:>5}{length:5}  {engine:14}{1 / seen.token:8.1f} tok/s  prompt {seen.prompt * 1e3:7.1f} ms"
        shown += f"  first calls {begun:6.2f} s  {count} tokens from nothing {begun + seen.token * (count - 2):6.2f} s"
        shown += f"  read {share:4.0%}"
        if engine in (*SCHEMES, "quantize_dynamic", OF_TORCH):
            shown += f"  surprise {surprise(models[engine], text) - plain:+.4f}"
        if eager is not None and engine != "eager":
            gained = eager.token - seen.token
            paid = f"{(begun - first['eager'].first) / gained:.0f}" if gained > 0 else "never"
            same = "equal" if seen.tokens == eager.tokens else "other tokens"
            shown += f"  {eager.token / seen.token:4.2f}x eager, paid after {paid} tokens, {same}"
        if engine in SCHEMES and "argand" in best:
            shown += f", {best['argand'].token / seen.token:4.2f}x argand"
        print(shown, flush=True)


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.generate", description=__doc__)
    parser.add_argument("--models", default=",".join(NAMES), help=f"of {', '.join(NAMES)}")
    parser.add_argument(
        "--seeds",
        type=int,
        default=0,
        help="compare tokens with eager's over so many prompts, and no speed",
    )
    parser.add_argument("--sizes", default="30M,300M", help=f"of {', '.join(SIZES)}")
    parser.add_argument("--prompts", default="32,512", help="lengths")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--engines", default=",".join(ENGINES), help=f"of {', '.join(ENGINES)}")
    chosen = parser.parse_args(argv)
    for size in chosen.sizes.split(","):
        for name in chosen.models.split(","):
            for length in map(int, chosen.prompts.split(",")):
                if chosen.seeds:
                    equality(name, size, length, chosen.tokens, chosen.seeds)
                    continue
                compare(name, size, length, chosen.tokens, chosen.rounds, chosen.engines.split(","))
    return 0


if __name__ == "__main__":
    sys.exit(main())
