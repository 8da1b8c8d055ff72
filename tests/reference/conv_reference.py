"""A convolutional net in PyTorch: loss and gradients of one batch.

usage: conv_reference.py SPEC BATCH INPUT OUTPUT
  SPEC    psring's text, as in 1x28x28-16c3-p2-r3-128-10 (no dropout)
  INPUT   raw little-endian f32: the parameters in psring's order, x [batch, c * h * w], then targets [batch] as f32, or
          for a SPEC that ends in mse: targets [batch, outputs]
  OUTPUT  raw f32: the mean loss, then the gradients in the order of the parameters
"""
import sys

try:
    import numpy as np
    import torch
    from torch import nn
except ImportError:
    print("SKIPPED: python3 has no PyTorch")
    sys.exit(77)


class Residual(nn.Module):
    def __init__(self, channels, kernel):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, kernel, padding=kernel // 2)
        self.second = nn.Conv2d(channels, channels, kernel, padding=kernel // 2)

    def forward(self, x):
        return torch.relu(x + self.second(torch.relu(self.first(x))))


def build(words):
    channels, height, width = map(int, words[0].split("x"))
    image = (channels, height, width)
    parts, flat = [], None
    for i, word in enumerate(words[1:]):
        last = i + 2 == len(words)
        if word.isdigit():
            if flat is None:
                parts.append(nn.Flatten())
                flat = channels * height * width
            parts.append(nn.Linear(flat, int(word)))
            if not last:
                parts.append(nn.ReLU())
            flat = int(word)
        elif word.startswith("p"):
            size = int(word[1:])
            parts.append(nn.MaxPool2d(size))
            height, width = height // size, width // size
        elif word.startswith("r"):
            parts.append(Residual(channels, int(word[1:])))
        else:
            out, kernel = map(int, word.split("c"))
            parts += [nn.Conv2d(channels, out, kernel, padding=kernel // 2), nn.ReLU()]
            channels = out
    return image, nn.Sequential(*parts)


def main():
    spec, batch, source, target = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    torch.set_num_threads(1)
    words = spec.split("-")
    square = words[-1] == "mse"
    image, net = build(words[:-1] if square else words)
    values = torch.from_numpy(np.fromfile(source, dtype="<f4").copy())
    at = 0

    def take(shape):
        nonlocal at
        count = int(np.prod(shape))
        at += count
        return values[at - count:at].reshape(shape).clone()

    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(take(tuple(parameter.shape)))
    x = take((batch, *image))
    targets = values[at:]
    y = net(x)
    loss = nn.functional.mse_loss(y, targets.reshape(y.shape)) if square else nn.functional.cross_entropy(y, targets.long())
    loss.backward()
    out = [loss.detach().reshape(1)] + [p.grad.reshape(-1) for p in net.parameters()]
    torch.cat(out).numpy().astype("<f4").tofile(target)


main()
