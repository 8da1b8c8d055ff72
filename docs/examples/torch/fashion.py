"""Fashion-MNIST (Debian's dataset-fashion-mnist) and a small conv net, for the examples beside this file."""

import gzip
import os

import numpy as np
import torch
from torch import nn

FOLDER = os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist")


def _read(name: str, header: int) -> np.ndarray:
    with gzip.open(f"{FOLDER}/{name}.gz") as file:
        return np.frombuffer(file.read(), np.uint8, offset=header)


def load(part: str) -> torch.utils.data.TensorDataset:
    """`part`: train or t10k."""
    images = torch.tensor(_read(f"{part}-images-idx3-ubyte", 16)).view(-1, 1, 28, 28) / 255
    return torch.utils.data.TensorDataset(images, torch.tensor(_read(f"{part}-labels-idx1-ubyte", 8)).long())


def net() -> nn.Module:
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Flatten(),
        nn.Linear(32 * 49, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


@torch.no_grad()
def accuracy(model: nn.Module) -> float:
    model.eval()
    images, labels = load("t10k").tensors
    right = sum(int((model(x).argmax(1) == y).sum()) for x, y in zip(images.split(500), labels.split(500)))
    model.train()
    return right / len(labels)
