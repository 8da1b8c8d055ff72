"""Trains a GPT-2 in PyTorch, f32, from given weights and samples, with AdamW.

gpt_training.py WEIGHTS TEXT layers=2,dim=32,heads=4,context=16,vocab=256 BATCH STEPS LR CLIP prints each step's loss. WEIGHTS is a
safetensors file under GPT-2's names; step k reads samples k BATCH ... of the text's bytes, in file order.
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


def loss_of(w, shape, tokens):
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


def main():
    weights, text, shape, batch, steps, lr, clip = sys.argv[1:]
    torch.set_num_threads(1)
    shape = {key: int(value) for key, value in (pair.split("=") for pair in shape.split(","))}
    w = load(weights)
    data = torch.tensor(list(open(text, "rb").read()))
    optimizer = torch.optim.AdamW(w.values(), lr=float(lr))
    context, batch = shape["context"], int(batch)
    for step in range(int(steps)):
        first = [(step * batch + i) * context for i in range(batch)]
        loss = loss_of(w, shape, torch.stack([data[at : at + context + 1] for at in first]))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(w.values(), float(clip))
        optimizer.step()
        print(repr(loss.item()))


main()
