"""benchmarks.libraries.programs: what a user of each library writes, small and with random weights.

A program gets ``compile``, prepares its models and returns its work: a function whose first result is compared with eager
(numbers, tensors, containers of them), and whose later calls are the steady state. Programs that
draw random numbers inside of the compiled part are left out: their numbers differ from eager's by design.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.libraries.judge import Compile, Scenario, Work

PROGRAMS: dict[str, Scenario] = {}


def program(function: Scenario) -> Scenario:
    """Register a program by its name."""
    PROGRAMS[function.__name__] = function
    return function


def _small_llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128,
    )  # fmt: skip
    torch.manual_seed(0)
    return LlamaForCausalLM(config).eval()


@program
def transformers_generate(compile_: Compile) -> Work:
    """Greedy decoding with the default cache."""
    model = _small_llama()
    model.forward = compile_(model.forward)

    def work() -> Any:
        return model.generate(torch.arange(1, 9)[None], max_new_tokens=12, do_sample=False)

    return work


@program
def transformers_generate_static(compile_: Compile) -> Work:
    """Greedy decoding with a static cache."""
    model = _small_llama()
    model.forward = compile_(model.forward)
    tokens = torch.arange(1, 9)[None]

    def work() -> Any:
        return model.generate(
            tokens, max_new_tokens=12, do_sample=False, cache_implementation="static"
        )

    return work


@program
def transformers_trainer(compile_: Compile) -> Work:
    """Fine-tuning steps by Trainer, the model compiled before."""
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model = BertForSequenceClassification(config)
    model.forward = compile_(model.forward)
    rows = [{"input_ids": torch.arange(8) + n, "labels": n % 2} for n in range(16)]

    def work() -> Any:
        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(
                folder, per_device_train_batch_size=4, max_steps=4, report_to=[], save_strategy="no", disable_tqdm=True,
                use_cpu=True, seed=0, logging_strategy="no", dataloader_pin_memory=False,
            )  # fmt: skip
            loss = Trainer(model=model, args=arguments, train_dataset=rows).train().training_loss
        return loss, model.classifier.weight.detach()

    return work


@program
def transformers_pipeline(compile_: Compile) -> Work:
    """A feature-extraction call with padding, lengths changing."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
    )
    model = compile_(BertModel(config).eval())

    def work() -> Any:
        results = []
        with torch.no_grad():
            for length in (5, 9, 12):
                mask = torch.ones(2, length, dtype=torch.long)
                mask[1, 3:] = 0
                tokens = torch.arange(2 * length).reshape(2, length) % 64
                results.append(model(tokens, attention_mask=mask).last_hidden_state)
        return results

    return work


@program
def peft_lora(compile_: Compile) -> Work:
    """One step of low-rank adapters over a small Llama."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], lora_dropout=0.0)
    model = get_peft_model(_small_llama(), config)
    step = compile_(lambda tokens: model(tokens, labels=tokens).loss)
    tokens = torch.arange(1, 17)[None]

    def work() -> Any:
        loss = step(tokens)
        loss.backward()
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        return loss.detach(), grads

    return work


@program
def accelerate_training(compile_: Compile) -> Work:
    """A loop prepared by Accelerator."""
    from accelerate import Accelerator

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    accelerator = Accelerator(cpu=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compiled, optimizer = accelerator.prepare(compile_(model), optimizer)

    def work() -> Any:
        losses = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = compiled(torch.ones(3, 4)).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            losses.append(loss.item())
        return losses

    return work


@program
def lightning_training_step(compile_: Compile) -> Work:
    """A LightningModule whose training_step is compiled, under Trainer."""
    import lightning as L

    class Module(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))

        def training_step(self, batch: Any, index: int) -> Tensor:
            loss = self.net(batch[0]).square().mean()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    torch.manual_seed(0)
    module: Any = Module()
    module.training_step = compile_(module.training_step)
    data = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.ones(8, 4)), batch_size=2
    )

    def work() -> Any:
        trainer = L.Trainer(
            max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False,
        )  # fmt: skip
        trainer.fit(module, data)
        return [p.detach() for p in module.parameters()]

    return work


@program
def timm_training(compile_: Compile) -> Work:
    """A step of a small image model with its loss."""
    import timm
    from timm.loss import LabelSmoothingCrossEntropy

    torch.manual_seed(0)
    model = timm.create_model("resnet10t", num_classes=4)
    loss_of = LabelSmoothingCrossEntropy()
    compiled = compile_(model)

    def work() -> Any:
        loss = loss_of(compiled(torch.randn(2, 3, 64, 64)), torch.tensor([0, 3]))
        loss.backward()
        return loss.detach()

    return work


@program
def torchmetrics_accuracy(compile_: Compile) -> Work:
    """Metrics updated inside of a compiled evaluation step."""
    from torchmetrics.classification import MulticlassAccuracy

    metric = MulticlassAccuracy(num_classes=3, validate_args=False)
    step = compile_(lambda logits, target: metric.update(logits.softmax(-1), target))

    def work() -> Any:
        for n in range(3):
            torch.manual_seed(n)
            step(torch.randn(8, 3), torch.randint(0, 3, (8,)))
        return metric.compute()

    return work


@program
def sentence_transformers_encode(compile_: Compile) -> Work:
    """Embeddings of texts of several lengths."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
    )
    bert = BertModel(config).eval()

    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = bert

        def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
            out = self.bert(features["input_ids"], attention_mask=features["attention_mask"])
            return {**features, "token_embeddings": out.last_hidden_state}

    model = SentenceTransformer(modules=[Words(), Pooling(32)], device="cpu")
    compiled = compile_(model)

    def work() -> Any:
        results = []
        with torch.no_grad():
            for length in (4, 7):
                features = {
                    "input_ids": torch.arange(length)[None],
                    "attention_mask": torch.ones(1, length, dtype=torch.long),
                }
                results.append(compiled(features)["sentence_embedding"])
        return results

    return work


@program
def diffusers_unet(compile_: Compile) -> Work:
    """Denoising steps of a small U-Net with a scheduler."""
    from diffusers import DDIMScheduler, UNet2DModel

    torch.manual_seed(0)
    model = UNet2DModel(
        sample_size=16, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(8, 16),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=4,
    ).eval()  # fmt: skip
    scheduler = DDIMScheduler(num_train_timesteps=100)
    scheduler.set_timesteps(3)
    compiled, noise = compile_(model), torch.randn(1, 1, 16, 16)

    def work() -> Any:
        x = noise
        with torch.no_grad():
            for step in scheduler.timesteps:
                x = scheduler.step(compiled(x, step).sample, step, x).prev_sample
        return x

    return work


@program
def geometric_gcn(compile_: Compile) -> Work:
    """Training steps of a graph network on a random graph."""
    from torch_geometric.nn import GCNConv

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = GCNConv(8, 16), GCNConv(16, 4)

        def forward(self, x: Tensor, edges: Tensor) -> Tensor:
            return self.second(self.first(x, edges).relu(), edges)

    torch.manual_seed(0)
    model, x, edges = Net(), torch.randn(20, 8), torch.randint(0, 20, (2, 60))
    compiled, optimizer = compile_(model), torch.optim.Adam(model.parameters(), lr=0.01)

    def work() -> Any:
        for _ in range(3):
            optimizer.zero_grad()
            loss = compiled(x, edges).square().mean()
            loss.backward()
            optimizer.step()
        return loss.detach()

    return work


@program
def torchdiffeq_odeint(compile_: Compile) -> Work:
    """A neural differential equation, its right side compiled."""
    from torchdiffeq import odeint

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
    side = compile_(lambda t, y: net(y**3))

    def work() -> Any:
        y = odeint(side, torch.tensor([[2.0, 0.0]]), torch.linspace(0, 1, 5), method="rk4")
        y.sum().backward()
        return y.detach(), [p.grad for p in net.parameters()]

    return work


@program
def gpytorch_regression(compile_: Compile) -> Work:
    """Marginal likelihood steps of an exact Gaussian process."""
    import gpytorch

    class Model(gpytorch.models.ExactGP):
        def __init__(self, x: Tensor, y: Tensor, likelihood: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean, self.kernel = (
                gpytorch.means.ConstantMean(),
                gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()),
            )

        def forward(self, x: Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    x = torch.linspace(0, 1, 12)
    y = torch.sin(6 * x)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Model(x, y, likelihood).train()
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    step = compile_(lambda x: -objective(model(x), y))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    def work() -> Any:
        for _ in range(2):
            optimizer.zero_grad()
            loss = step(x)
            loss.backward()
            optimizer.step()
        return loss.detach()

    return work


@program
def botorch_acquisition(compile_: Compile) -> Work:
    """An acquisition function of a Gaussian process, evaluated compiled."""
    from botorch.acquisition import LogExpectedImprovement
    from botorch.models import SingleTaskGP

    torch.manual_seed(0)
    x = torch.rand(6, 2, dtype=torch.float64)
    model = SingleTaskGP(x, x.sum(-1, keepdim=True))
    acquisition = LogExpectedImprovement(model, best_f=1.0)
    evaluate = compile_(lambda points: acquisition(points))

    def work() -> Any:
        return evaluate(torch.rand(3, 1, 2, dtype=torch.float64)).detach()

    return work


@program
def opacus_privacy(compile_: Compile) -> Work:
    """Per-sample gradients by hooks, the loss compiled."""
    from opacus import GradSampleModule

    torch.manual_seed(0)
    model = GradSampleModule(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)))
    step = compile_(lambda x: model(x).square().mean())

    def work() -> Any:
        for parameter in model.parameters():
            parameter.grad_sample = None
        step(torch.ones(3, 4)).backward()
        return [p.grad_sample for p in model.parameters()]

    return work


@program
def stable_baselines_policy(compile_: Compile) -> Work:
    """The policy of an actor-critic evaluated over a batch."""
    import gymnasium as gym
    from stable_baselines3.common.policies import ActorCriticPolicy

    torch.manual_seed(0)
    spaces = gym.spaces
    policy = ActorCriticPolicy(spaces.Box(-1, 1, (4,)), spaces.Discrete(2), lambda _: 1e-3)
    evaluate = compile_(policy.evaluate_actions)

    def work() -> Any:
        values, logs, entropy = evaluate(torch.ones(5, 4), torch.zeros(5, dtype=torch.long))
        (values.sum() + logs.sum() + entropy.sum()).backward()
        return values.detach(), logs.detach(), [p.grad for p in policy.parameters()]

    return work


@program
def torchrl_advantage(compile_: Compile) -> Work:
    """Generalized advantages of a batch of trajectories."""
    from torchrl.objectives.value.functional import generalized_advantage_estimate

    torch.manual_seed(0)
    shape = (2, 8, 1)
    values, following, rewards = torch.rand(shape), torch.rand(shape), torch.rand(shape)
    ended = torch.zeros(shape, dtype=torch.bool)
    ended[:, -1] = True
    estimate = compile_(lambda *inputs: generalized_advantage_estimate(0.99, 0.95, *inputs))

    def work() -> Any:
        return list(estimate(values, following, rewards, ended, ended))

    return work


@program
def kornia_filters(compile_: Compile) -> Work:
    """Image filters and colours."""
    import kornia

    torch.manual_seed(0)
    image = torch.rand(1, 3, 16, 16)
    run = compile_(
        lambda x: kornia.filters.gaussian_blur2d(kornia.color.rgb_to_hsv(x), (3, 3), (1.0, 1.0))
    )

    def work() -> Any:
        return run(image)

    return work


@program
def einops_layers(compile_: Compile) -> Work:
    """Rearranging with names, of two batch sizes."""
    from einops import rearrange, reduce

    run = compile_(
        lambda x: reduce(rearrange(x, "b (h w) c -> b c h w", h=4), "b c h w -> b c", "mean")
    )

    def work() -> Any:
        return [run(torch.arange(n * 16 * 3.0).reshape(n, 16, 3)) for n in (1, 2, 3)]

    return work


@program
def pyro_model(compile_: Compile) -> Work:
    """Steps of variational inference with a compiled network inside."""
    import pyro
    import pyro.distributions as dist
    from pyro.infer import SVI, Trace_ELBO

    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    torch.manual_seed(0)
    net = nn.Linear(2, 1)
    compiled: Callable[..., Tensor] = compile_(net)

    def model(x: Tensor, y: Tensor) -> None:
        weight = pyro.param("weight", torch.tensor(1.0))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(weight * compiled(x).squeeze(-1), 1.0), obs=y)

    svi = SVI(model, lambda x, y: None, pyro.optim.Adam({"lr": 0.1}), Trace_ELBO())
    x = torch.arange(8.0).reshape(4, 2)

    def work() -> Any:
        return [svi.step(x, x.sum(-1)) for _ in range(3)]

    return work


@program
def numpy_interop(compile_: Compile) -> Work:
    """Arrays in and out."""
    import numpy as np

    def run(x: Tensor) -> Tensor:
        y = (x * 2).numpy()
        return torch.from_numpy(np.cumsum(y, axis=0)) + 1

    compiled = compile_(run)

    def work() -> Any:
        return compiled(torch.arange(6.0).reshape(3, 2))

    return work
