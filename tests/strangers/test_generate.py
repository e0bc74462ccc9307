"""transformers' ``generate`` with a compiled forward: eager's tokens, no graph breaks, a fixed number of compiles."""

import pytest
import torch
import transformers

import argand
from argand.support import events

SMALL = {
    **{"vocab_size": 128, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2},
    **{
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 1024,
        "pad_token_id": 0,
    },
}
CONFIGS = {
    "LlamaConfig": {},
    "Qwen2Config": {},
    "MistralConfig": {"sliding_window": None},
    "GemmaConfig": {"head_dim": 16},
    "GPT2Config": {"n_embd": 64, "n_layer": 2, "n_head": 4},
    "PhiConfig": {},
    "SmolLM3Config": {},
}
# A token's cache grows: its length is open from the start. A prompt: first with its length, then with any. A static
# cache has the length of the first call, so that a token of it is compiled twice as well.
MOST = {"dynamic": 3, "static": 4}
LIMITS = {"max_new_tokens": 20, "min_new_tokens": 20, "pad_token_id": 0}


def make(name="LlamaConfig", seed=0):
    torch.manual_seed(seed)
    config = getattr(transformers, name)(**SMALL | CONFIGS[name])
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def compiled(model):
    argand.reset()
    model.forward = argand.compile(model.forward, options={"cache": False, "measure": False})
    return model


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", CONFIGS)
def test_few_compiles_for_any_lengths(name, cache):
    plain, model = make(name), compiled(make(name))
    with events.collect() as heard:
        for length, count in ((5, 20), (9, 20), (30, 60), (17, 9)):
            prompt = torch.randint(1, 128, (1, length))
            given = {**LIMITS, "do_sample": False, "max_new_tokens": count, "min_new_tokens": count}
            given["cache_implementation"] = cache
            assert torch.equal(model.generate(prompt, **given), plain.generate(prompt, **given))
    assert heard.total("capture.graphs") <= MOST[cache]
    assert heard.total("capture.breaks") == 0


def both(model, plain, *arguments, **given):
    results = []
    for one in (model, plain):
        torch.manual_seed(3)
        results.append(one.generate(*arguments, **LIMITS, **given))
    assert torch.equal(*results)


def test_ways_to_write():
    plain, model = make(), compiled(make())
    prompt = torch.randint(1, 128, (2, 7))
    both(model, plain, prompt, do_sample=False)
    both(model, plain, prompt, do_sample=True, temperature=0.8, top_k=20)
    both(model, plain, prompt, do_sample=False, num_beams=3)
    mask = torch.ones_like(prompt)
    mask[1, :3] = 0
    both(model, plain, prompt, do_sample=False, attention_mask=mask)
    both(model, plain, prompt[:1], do_sample=False, assistant_model=make(seed=1))


def test_streams_token_by_token():
    class Seen(transformers.generation.streamers.BaseStreamer):
        def __init__(self):
            self.tokens = []

        def put(self, value):
            self.tokens += value.flatten().tolist()

        def end(self):
            self.tokens.append(None)

    prompt, seen = torch.randint(1, 128, (1, 6)), []
    for model in (make(), compiled(make())):
        seen.append(Seen())
        model.generate(prompt, streamer=seen[-1], do_sample=False, **LIMITS)
    assert seen[0].tokens == seen[1].tokens and len(seen[0].tokens) == 6 + 20 + 1
