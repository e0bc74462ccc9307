"""A language model writes: transformers' `generate`, with and without Argand, printed as it comes.

Without a folder the model has random weights, so it writes nonsense, at the speed of a real one of its size.
"""

import argparse
import itertools
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig
from transformers.generation.streamers import BaseStreamer

import argand


class Clock(BaseStreamer):
    """Prints what comes, and notes when."""

    def __init__(self, show: Callable[[int], str]) -> None:
        self.show, self.times, self.is_prompt = show, [time.perf_counter()], True

    def put(self, value: torch.Tensor) -> None:
        """One token; the first call has the prompt."""
        if self.is_prompt:
            self.is_prompt = False
            return
        self.times.append(time.perf_counter())
        print(self.show(int(value)), end="", flush=True)

    def end(self) -> None:
        """All is written."""
        print()


def load(folder: str, small: bool) -> tuple[Any, torch.Tensor, Callable[[int], str]]:
    """A model, a prompt, and how a token is shown."""
    if folder:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model = AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, dtype=torch.float32
        )
        prompt = tokenizer("Once upon a time", return_tensors="pt").input_ids
        return model.eval(), prompt, lambda token: tokenizer.decode([token])
    width = 64 if small else 512
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=4096, hidden_size=width, intermediate_size=3 * width, num_hidden_layers=2 if small else 8,
        num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=2048,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config).eval()
    return model, torch.randint(1, 4096, (1, 32)), lambda token: f"{token} "


def write(
    model: Any, prompt: torch.Tensor, show: Callable[[int], str], tokens: int
) -> tuple[torch.Tensor, list[float]]:
    """The text, and the seconds until each token."""
    clock = Clock(show)
    limits = {
        "max_new_tokens": tokens,
        "min_new_tokens": tokens,
        "do_sample": False,
        "pad_token_id": 0,
    }
    text = model.generate(prompt, streamer=clock, **limits)
    return text, [now - clock.times[0] for now in clock.times[1:]]


def typical(times: list[float]) -> float:
    """Seconds per token, in the middle of the second half: compiling is over by then."""
    steps = [after - before for before, after in itertools.pairwise(times)]
    late = sorted(steps[len(steps) // 2 :])
    return late[len(late) // 2]


def main() -> None:
    """Write twice, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--folder", default="", help="weights and tokenizer, as transformers saves them"
    )
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--small", action="store_true")
    chosen = parser.parse_args()
    tokens = 24 if chosen.small else chosen.tokens
    model, prompt, show = load(chosen.folder, chosen.small)
    print("eager:")
    wanted, eager = write(model, prompt, show, tokens)
    model.forward = argand.compile(model.forward)
    print("argand:")
    found, ours = write(model, prompt, show, tokens)
    slow, fast = typical(eager), typical(ours)
    compiling = ours[-1] - fast * len(ours)
    for name, times, each in (("eager", eager, slow), ("argand", ours, fast)):
        print(
            f"{name}: first token after {times[0]:.2f} s, {1 / each:.1f} tokens per second, all in {times[-1]:.2f} s"
        )
    paid = (
        f"paid back after {compiling / (slow - fast):.0f} tokens"
        if fast < slow
        else "not paid back at this size"
    )
    print(
        f"compiling took {max(compiling, 0):.2f} s, {paid}; {'equal' if torch.equal(found, wanted) else 'other'} tokens"
    )


if __name__ == "__main__":
    main()
