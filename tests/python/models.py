"""Models and training for tests: a conv net and a small GPT, on random data that depends on step and rank alone."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU()
        )
        self.head = nn.Linear(16 * 12 * 12, 10)

    def forward(self, x):
        return self.head(self.body(x).flatten(1))

    @staticmethod
    def batch(generator):
        images = torch.randn(8, 1, 28, 28, generator=generator, device="cpu")
        return images, torch.randint(0, 10, (8,), generator=generator, device="cpu")


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, -1).transpose(1, 2) for part in self.qkv(self.first(x)).chunk(3, -1))
        scores = q @ k.transpose(-2, -1) / (c // self.heads) ** 0.5
        masked = scores.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), float("-inf")).softmax(-1)
        x = x + self.out((masked @ v).transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.second(x))


class GPT(nn.Module):
    def __init__(self, vocabulary=64, width=32, layers=2, context=16):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, 2) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x):
        x = self.tokens(x) + self.places(torch.arange(x.size(1)))
        return self.head(self.norm(self.blocks(x))).transpose(1, 2)

    @staticmethod
    def batch(generator):
        text = torch.randint(0, 64, (4, 17), generator=generator, device="cpu")
        return text[:, :-1], text[:, 1:]


def train(rank, size, model, optimizer, steps=50, **options):
    """Trains under DDP, on the default device; returns all parameters as one vector."""
    device = torch.empty(0).device
    torch.manual_seed(0)
    module = {"conv": ConvNet, "gpt": GPT}[model]()
    wrapped = nn.parallel.DistributedDataParallel(module, **options)
    parameters = wrapped.parameters()
    update = torch.optim.SGD(parameters, lr=0.05, momentum=0.9) if optimizer == "sgd" else torch.optim.AdamW(parameters)
    generator = torch.Generator("cpu").manual_seed(1 + rank)
    for _ in range(steps):
        x, y = (each.to(device) for each in module.batch(generator))
        update.zero_grad(set_to_none=not options.get("gradient_as_bucket_view", False))
        F.cross_entropy(wrapped(x), y).backward()
        update.step()
    return torch.cat([p.detach().flatten() for p in module.parameters()]).cpu().numpy()
