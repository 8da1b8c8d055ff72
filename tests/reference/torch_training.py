"""Trains a GPT-2 or an MLP in PyTorch, f32, from given weights and samples, with AdamW.

torch_training.py WEIGHTS DATA MODEL BATCH STEPS LR CLIP prints each step's loss. WEIGHTS is a safetensors file with psring's names.
MODEL is gpt:layers=2,dim=32,heads=4,context=16,vocab=256, whose DATA is a text: step k reads samples k BATCH ... of its bytes, in file
order; or mlp:30-21-4, whose DATA has a line of 30 numbers and a class for each sample.
"""

import json
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
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            tensors[name] = torch.frombuffer(data[begin:end], dtype=torch.float32).reshape(entry["shape"]).clone().requires_grad_()
    return tensors


class Gpt:
    def __init__(self, text, data):
        self.shape = {key: int(value) for key, value in (pair.split("=") for pair in text.split(","))}
        self.data = torch.tensor(list(open(data, "rb").read()))

    def loss(self, w, begin, end):
        context = self.shape["context"]
        return self.loss_of(w, torch.stack([self.data[i * context : (i + 1) * context + 1] for i in range(begin, end)]))

    def loss_of(self, w, tokens):
        shape = self.shape
        context, dim, heads = shape["context"], shape["dim"], shape["heads"]
        inputs, targets = tokens[:, :context], tokens[:, 1:]
        norm = lambda x, name: F.layer_norm(x, (dim,), w[name + ".weight"], w[name + ".bias"])
        linear = lambda x, name: x @ w[name + ".weight"] + w[name + ".bias"]
        mask = torch.full((context, context), float("-inf")).triu(1)
        x = w["wte.weight"][inputs] + w["wpe.weight"]
        for i in range(shape["layers"]):
            h = f"h.{i}."
            qkv = linear(norm(x, h + "ln_1"), h + "attn.c_attn")
            q, k, v = (part.reshape(*x.shape[:2], heads, dim // heads).transpose(1, 2) for part in qkv.split(dim, 2))
            scores = (q @ k.transpose(2, 3)) / (dim // heads) ** 0.5 + mask
            mixed = (scores.softmax(3) @ v).transpose(1, 2).reshape(x.shape)
            x = x + linear(mixed, h + "attn.c_proj")
            x = x + linear(F.gelu(linear(norm(x, h + "ln_2"), h + "mlp.c_fc"), approximate="tanh"), h + "mlp.c_proj")
        logits = norm(x, "ln_f") @ w["wte.weight"].T
        return F.cross_entropy(logits.reshape(-1, shape["vocab"]), targets.reshape(-1))


class Mlp:
    def __init__(self, text, data):
        self.layers = len(text.split("-")) - 1
        lines = [line.split(",") for line in open(data)]
        self.inputs = torch.tensor([[float(value) for value in line[:-1]] for line in lines])
        self.classes = torch.tensor([int(line[-1]) for line in lines])

    def loss(self, w, begin, end):
        x = self.inputs[begin:end]
        for i in range(self.layers):
            x = F.linear(x if i == 0 else F.relu(x), w[f"layers.{i}.weight"], w[f"layers.{i}.bias"])
        return F.cross_entropy(x, self.classes[begin:end])


def main():
    weights, data, text, batch, steps, lr, clip = sys.argv[1:]
    torch.set_num_threads(1)
    name, text = text.split(":")
    model = {"gpt": Gpt, "mlp": Mlp}[name](text, data)
    w = load(weights)
    optimizer = torch.optim.AdamW(w.values(), lr=float(lr))
    batch = int(batch)
    for step in range(int(steps)):
        loss = model.loss(w, step * batch, (step + 1) * batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(w.values(), float(clip))
        optimizer.step()
        print(repr(loss.item()))


main()
