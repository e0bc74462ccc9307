"""An image classifier behind FastAPI. Run it with: uvicorn serve_images:app (from this folder).

The model is compiled when the process starts, once, for any number of images up to a limit; while it serves, nothing is compiled.
"""

import argparse
from contextlib import asynccontextmanager
from typing import Any

import torch
from fastapi import FastAPI, HTTPException
from torch import nn

import argand

SIDE, MOST = 32, 64


def make_model() -> nn.Module:
    """A small convolutional network; put yours here, and load its weights."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(32, 10),
    ).eval()  # fmt: skip


model = argand.compile(make_model())


@asynccontextmanager
async def compile_first(_: FastAPI) -> Any:
    """Compile before the first request; from then on a new kind of input runs in eager."""
    example = torch.zeros(2, 3, SIDE, SIDE)
    argand.mark_dynamic(example, 0, max=MOST)
    with torch.inference_mode():
        model(example)
    with argand.set_stance("eager_on_recompile"):
        yield


app = FastAPI(lifespan=compile_first)


@app.post("/classify")
def classify(images: list[list[float]]) -> list[int]:
    """The class of each image, given as 3 * 32 * 32 numbers."""
    if not 0 < len(images) <= MOST or any(len(image) != 3 * SIDE * SIDE for image in images):
        raise HTTPException(422, f"give 1 to {MOST} images of {3 * SIDE * SIDE} numbers")
    batch = torch.tensor(images).reshape(-1, 3, SIDE, SIDE)
    with torch.inference_mode():
        return [int(label) for label in model(batch).argmax(-1)]


def main() -> None:
    """Ask the server in this process, with several batch sizes."""
    from fastapi.testclient import TestClient

    argparse.ArgumentParser(description=__doc__).parse_known_args()
    eager = make_model()
    with TestClient(app) as client:
        for count in (1, 2, 5):
            images = torch.rand(count, 3 * SIDE * SIDE)
            answer = client.post("/classify", json=images.tolist()).json()
            with torch.inference_mode():
                assert answer == eager(images.reshape(-1, 3, SIDE, SIDE)).argmax(-1).tolist()
            print(f"{count} images: {answer}")
        assert client.post("/classify", json=[[1.0]]).status_code == 422


if __name__ == "__main__":
    main()
