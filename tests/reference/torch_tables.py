"""Trains models with tables in PyTorch, f32, from given tensors and rows, and compares the result with a saved model.

torch_tables.py START END DATA MODEL BATCH STEPS LR TABLE_OPTIMIZER TABLE_LR: START and END are safetensors files with psring's names,
before and after the steps. MODEL is psring's specification. DATA is its file in the format of Criteo's data sets, or of pairs; step k
reads BATCH lines, in file order, without every tenth line. Dense tensors are updated by torch.optim.SGD, rows by SGD, Adagrad or
SparseAdam over sparse gradients. Prints each step's loss, the largest norm of a tensor's difference,
relative to the tensor's norm, and the largest difference of an element.
"""

import json
import math
import struct
import sys

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit(77)


def load(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = bytearray(file.read())
    types = {"F32": torch.float32, "U64": torch.int64}
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            tensors[name] = torch.frombuffer(data[begin:end], dtype=types[entry["dtype"]]).reshape(entry["shape"]).clone()
    return tensors


class Machine:
    """A factorization machine, of clicks or of ratings."""

    def __init__(self, shape, clicks):
        self.clicks = clicks

    def output(self, w, inputs, rows):
        weights, vectors = rows[:, :, 0], rows[:, :, 1:]
        pairs = (vectors.sum(1) ** 2).sum(1) - (vectors**2).sum((1, 2))
        linear = F.linear(inputs, w["linear.weight"])[:, 0] if "linear.weight" in w else 0
        return w["bias"] + weights.sum(1) + pairs / 2 + linear


class Dlrm:
    def __init__(self, shape, _clicks):
        self.shape = shape
        self.clicks = True

    def layers(self, w, name, x, relu_at_end):
        widths = self.shape[name].split("-")
        for i in range(len(widths)):
            x = F.linear(x, w[f"{name}.{i}.weight"], w[f"{name}.{i}.bias"])
            if relu_at_end or i + 1 < len(widths):
                x = F.relu(x)
        return x

    def output(self, w, inputs, rows):
        dense = self.layers(w, "bottom", inputs, True)
        vectors = torch.cat([dense[:, None], rows], 1)
        below = torch.tril_indices(vectors.shape[1], vectors.shape[1], -1)
        products = (vectors @ vectors.transpose(1, 2))[:, below[0], below[1]]
        return self.layers(w, "top", torch.cat([dense, products], 1), False)[:, 0]


def samples(path, dense, features, clicks):
    """The lines of the training split: real inputs, keys by feature, and the target."""
    found = []
    for number, line in enumerate(open(path)):
        if number % 10 == 9:
            continue
        columns = line.rstrip("\n").split("\t")
        if not clicks:
            found.append(([], [[int(columns[0])], [1 << 56 | int(columns[1])]], float(columns[2])))
            continue
        inputs = [math.log1p(max(float(x), 0)) if x else 0 for x in columns[1 : 1 + dense]]
        keys = [[f << 56 | int(key, 16)] if key else [] for f, key in enumerate(columns[1 + dense : 1 + dense + features])]
        found.append((inputs, keys, float(columns[0])))
    return found


def main():
    start, end, data, model, batch, steps, lr, table_optimizer, table_lr = sys.argv[1:]
    torch.set_num_threads(1)
    name, text = model.split(":")
    shape = dict(pair.split("=") for pair in text.split(","))
    clicks = name != "mf"
    net = {"fm": Machine, "mf": Machine, "dlrm": Dlrm}[name](shape, clicks)
    dense, features = int(shape.get("dense", 0)), int(shape.get("features", 2))
    lines = samples(data, dense, features, clicks)
    before, after = load(start), load(end)
    if not torch.equal(before["rows.keys"], after["rows.keys"]):
        sys.exit("the runs have rows of different keys")
    place = {key: i for i, key in enumerate(before["rows.keys"].tolist())}
    rows = torch.nn.Parameter(before["rows.values"])
    w = {key: torch.nn.Parameter(value) for key, value in before.items() if not key.startswith("rows.")}
    kinds = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad, "adam": torch.optim.SparseAdam}
    optimizers = [torch.optim.SGD(w.values(), lr=float(lr)), kinds[table_optimizer]([rows], lr=float(table_lr))]
    batch = int(batch)
    for step in range(int(steps)):
        part = lines[step * batch : (step + 1) * batch]
        bags = [[place[key] for key in bag] for _, keys, _ in part for bag in keys]
        offsets = torch.tensor([0] + [len(bag) for bag in bags]).cumsum(0)[:-1]
        lookups = torch.tensor([row for bag in bags for row in bag])
        looked_up = F.embedding_bag(lookups, rows, offsets, mode="sum", sparse=True).reshape(len(part), features, -1)
        y = net.output(w, torch.tensor([inputs for inputs, _, _ in part]), looked_up)
        targets = torch.tensor([target for _, _, target in part])
        loss = F.binary_cross_entropy_with_logits(y, targets) if clicks else F.mse_loss(y, targets)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        rows.grad = rows.grad.coalesce()
        for optimizer in optimizers:
            optimizer.step()
        print(repr(loss.item()))
    w["rows.values"] = rows
    differences = {key: w[key].detach().double() - after[key].double() for key in w}
    print(repr(max((differences[key].norm() / after[key].norm()).item() for key in w)))
    print(repr(max(difference.abs().max().item() for difference in differences.values())))


main()
