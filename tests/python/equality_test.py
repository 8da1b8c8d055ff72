"""ParameterServer against DDP over psring, tensor by tensor, and against `psring train`."""

import gzip
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import torch
except ImportError:
    print("SKIPPED: no PyTorch (Debian: python3-torch)")
    sys.exit(0)

import numpy as np
import torch.nn.functional as F
from torch import nn

import models
import psring.torch
from ranks import SCALE, run

STEPS = 50
LIMIT = 1e-6
torch.set_num_threads(1)


class SmoothConvNet(nn.Module):
    """models.ConvNet without kinks: where an activation lies within a rounding of 0, the gradient of ReLU (or of a
    maximum) is another one after another rounding, and no bound follows from the arithmetic."""

    batch = staticmethod(models.ConvNet.batch)

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.GELU(), nn.AvgPool2d(2), nn.Conv2d(8, 16, 3), nn.GELU()
        )
        self.head = nn.Linear(16 * 12 * 12, 10)

    def forward(self, x):
        return self.head(self.body(x).flatten(1))


MODELS = {"conv": SmoothConvNet, "gpt": models.GPT}


def parts(module):
    """The parameters by name; queries, keys and values have one vector of biases in the GPT, here three."""
    named = {}
    for name, value in module.named_parameters():
        value = value.detach().clone().numpy()
        if name.endswith("qkv.bias"):
            named.update({name.replace("qkv", part): each for part, each in zip("qkv", np.split(value, 3))})
        else:
            named[name] = value
    return named


def has_no_gradient(name):
    """Softmax does not change if all scores of a query change by the same, so a bias of keys has no influence on the
    loss; batch norm takes the mean away, and with it the bias of the convolution before it. Their gradients are 0 but
    for roundings. SGD hardly moves by them; AdamW divides each gradient by its own size, and so makes steps of the
    learning rate in random directions."""
    return name.endswith("k.bias") or name == "body.0.bias"


def train(rank, wrap, model, kind):
    """The parameters, and this rank's losses."""
    torch.manual_seed(0)
    module = MODELS[model]()
    parameters = module.parameters()
    update = torch.optim.SGD(parameters, lr=0.05, momentum=0.9) if kind == "sgd" else torch.optim.AdamW(parameters)
    wrapped = wrap(module, update)
    generator = torch.Generator().manual_seed(1 + rank)
    losses = []
    for _ in range(STEPS):
        x, y = module.batch(generator)
        update.zero_grad()
        loss = F.cross_entropy(wrapped(x), y)
        loss.backward()
        update.step()
        losses.append(loss.item())
    if isinstance(wrapped, psring.torch.ParameterServer):
        wrapped.close()  # waits for the last values
    return parts(module), losses


def both(rank, size, model, kind, how):
    def serve(module, update):
        return psring.torch.ParameterServer(module, update, **how)

    ddp = train(rank, lambda module, _: nn.parallel.DistributedDataParallel(module), model, kind)
    return ddp, train(rank, serve, model, kind)


class AgainstDdp(unittest.TestCase):
    def check(self, model, kind, **how):
        for size in (1, 2, 3, 4):
            with self.subTest(model=model, optimizer=kind, workers=size, **how):
                results = run(both, size, arguments=(model, kind, how), seconds=240)
                (ddp, losses), (served, other_losses) = results[0]
                far = {name: np.linalg.norm(ddp[name] - served[name]) / np.linalg.norm(ddp[name]) for name in ddp}
                excepted = {name for name in far if has_no_gradient(name)} if kind == "adamw" else set()
                worst = max(far.keys() - excepted, key=far.__getitem__)
                print(
                    f"{model}, {kind}, {size} workers: {far[worst]:.1e} ({worst})"
                    + "".join(f", {far[name]:.1e} ({name})" for name in sorted(excepted)),
                    flush=True,
                )
                # PyTorch divides the sum by the number of workers, psring multiplies by 1/n: the same for powers of two.
                same_bits = kind == "sgd" and size in (1, 2, 4)
                self.assertLessEqual(far[worst], 0 if same_bits else LIMIT, worst)
                np.testing.assert_allclose(other_losses, losses, rtol=1e-5)
                for _, (state, _) in results[1:]:
                    self.assertTrue(all(np.array_equal(state[name], served[name]) for name in served))

    def test_conv_net(self):
        self.check("conv", "sgd", servers=2)
        self.check("conv", "adamw")

    def test_gpt(self):
        self.check("gpt", "sgd")
        self.check("gpt", "adamw", servers=2)


IMAGES = Path("/usr/share/datasets/fashion-mnist")


def fashion_mnist(count):
    """The first samples of the training set, as psring and ToTensor scale them."""
    with gzip.open(IMAGES / "train-images-idx3-ubyte.gz") as images, gzip.open(
        IMAGES / "train-labels-idx1-ubyte.gz"
    ) as labels:
        pixels = np.frombuffer(images.read(16 + 784 * count), np.uint8, offset=16).reshape(count, 784)
        return torch.tensor(pixels) / 255, torch.tensor(np.frombuffer(labels.read(8 + count), np.uint8, offset=8)).long()


def save(path, tensors):
    """Writes a safetensors file."""
    header, at = {}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [at, at + tensor.nbytes]}
        at += tensor.nbytes
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(t.tobytes() for t in tensors.values()))


def load(path):
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    return {
        name: np.frombuffer(data[start + t["data_offsets"][0] : start + t["data_offsets"][1]], np.float32)
        for name, t in header.items()
    }


def mlp(widths):
    layers = [nn.Linear(a, b) for a, b in zip(widths, widths[1:])]
    return nn.Sequential(*[part for layer in layers[:-1] for part in (layer, nn.ReLU())], layers[-1])


def named(module):
    """The parameters under psring's names."""
    layers = [layer for layer in module if isinstance(layer, nn.Linear)]
    return {f"layers.{i}.{kind}": getattr(layer, kind) for i, layer in enumerate(layers) for kind in ("weight", "bias")}


def by_softmax(logits, labels):
    """The backward pass of the mean cross-entropy. PyTorch's own takes the softmax from its logarithm, psring's does
    not, and e to the power of ln 0.1 is not 0.1."""
    logits.backward((logits.detach().softmax(1) - F.one_hot(labels, logits.size(1))) / len(labels))


def serve(rank, size, widths, zero, batch, steps):
    torch.manual_seed(0)
    module = mlp(widths)
    if zero:
        for parameter in module.parameters():
            parameter.data.zero_()
    update = torch.optim.SGD(module.parameters(), lr=0.1, weight_decay=0.001)
    model = psring.torch.ParameterServer(module, update, servers=2)
    x, y = (part[rank::size] for part in fashion_mnist(size * batch * steps))
    for step in range(steps):
        mine = slice(step * batch, (step + 1) * batch)
        update.zero_grad()
        by_softmax(model(x[mine]), y[mine])
        update.step()
    model.close()
    return {name: p.detach().clone().flatten().numpy() for name, p in named(module).items()}


class AgainstTrain(unittest.TestCase):
    """`psring train` with the same first values and the same samples."""

    def both(self, widths, zero, batch, steps, size=2):
        torch.manual_seed(0)
        first = {name: p.detach().numpy() for name, p in named(mlp(widths)).items()}
        if zero:
            first = {name: np.zeros_like(value) for name, value in first.items()}
        with tempfile.TemporaryDirectory() as folder:
            save(Path(folder) / "first.safetensors", first)
            command = [f"{os.environ['PSRING_BIN']}/psring", "train", "--strategy", "ps", "--servers", "2"]
            command += ["--model", "mlp:" + "-".join(map(str, widths)), "--data", f"idx:{IMAGES}", "--shuffle", "none"]
            command += ["--init", f"{folder}/first.safetensors", "--workers", str(size), "--steps", str(steps)]
            command += ["--global-batch", str(size * batch), "--lr", "0.1", "--weight-decay", "0.001", "--out", f"{folder}/run"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120 * SCALE)
            self.assertEqual(done.returncode, 0, done.stderr)
            trained = load(Path(folder) / "run" / "model.safetensors")
        served = run(serve, size, backend=None, arguments=(widths, zero, batch, steps))[0]
        self.assertEqual(trained.keys(), served.keys())
        return trained, served

    def setUp(self):
        if not IMAGES.exists():
            self.skipTest("no dataset-fashion-mnist")

    def test_one_step_without_sums_has_the_same_bits(self):
        """From zeros, with one sample each, all logits are 0, and a gradient is one product: mean, rounding and update
        are what remains, and are psring's own in both."""
        for size in (2, 4):
            trained, served = self.both([784, 10], True, 1, 1, size)
            for name, value in trained.items():
                self.assertEqual(value.tobytes(), served[name].tobytes(), name)
            self.assertGreater(np.abs(trained["layers.0.weight"]).max(), 0)

    def test_mlp_differs_by_the_order_of_sums(self):
        """PyTorch's products of matrices (OpenBLAS or MKL) add in another order than oneDNN."""
        trained, served = self.both([784, 512, 512, 10], False, 64, 50)
        far = {name: np.linalg.norm(value - served[name]) / np.linalg.norm(value) for name, value in trained.items()}
        print("mlp: " + ", ".join(f"{value:.1e} ({name})" for name, value in far.items()), flush=True)
        self.assertLess(max(far.values()), LIMIT)


if __name__ == "__main__":
    unittest.main()
