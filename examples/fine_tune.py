"""Fine-tuning with transformers' Trainer. Nothing of it knows Argand: `torch_compile=True` calls `torch.compile`, which is ours.

With a folder of real weights: python fine_tune.py --model FOLDER. Without, a small model with random weights is made.
"""

import argparse
import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import argand


def make_model(folder: str) -> BertForSequenceClassification:
    """A classifier of two classes."""
    if folder:
        return BertForSequenceClassification.from_pretrained(folder, num_labels=2)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=128, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return BertForSequenceClassification(config)


def make_rows(count: int) -> list[dict[str, object]]:
    """Texts of random words; the class says whether word 7 is among them."""
    torch.manual_seed(1)
    rows = []
    for number in range(count):
        words = torch.randint(8, 128, (16,))
        if number % 2:
            words[int(torch.randint(0, 16, ()))] = 7
        rows.append({"input_ids": words, "labels": number % 2})
    return rows


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="", help="a folder with weights")
    parser.add_argument("--small", action="store_true", help="a few steps only")
    given = parser.parse_args()
    argand.install()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, torch_compile=True, max_steps=6 if given.small else 200, per_device_train_batch_size=8,
            learning_rate=1e-3, use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True,
            dataloader_pin_memory=False, logging_strategy="no",
        )  # fmt: skip
        trainer = Trainer(
            model=make_model(given.model), args=arguments, train_dataset=make_rows(64)
        )
        result = trainer.train()
    print(f"loss {result.training_loss:.3f} after {result.global_step} steps")


if __name__ == "__main__":
    main()
