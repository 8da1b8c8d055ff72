"""A GPT on the bytes of a text, through parameter servers. With ZERO=3 workers hold no parameters, gradients or optimizer
state, but those of the units at work.

python -m psring.run --nproc 2 gpt_ps.py TEXT [STEPS [ZERO]]
"""

import os
import sys

import torch
import torch.nn.functional as F

import psring.torch
from gpt import GPT, batch, block, read

rank = int(os.environ["RANK"])
text = read(sys.argv[1])
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 200
zero = int(sys.argv[3]) if len(sys.argv) > 3 else 1
torch.manual_seed(0)
model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model = psring.torch.ParameterServer(
    model, optimizer, servers=2, zero=zero, auto_wrap_policy=block, clip_norm=1.0
)

draw = torch.Generator().manual_seed(rank)
for step in range(steps):
    x, y = batch(text, draw)
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    if rank == 0 and step % 20 == 0:
        print(f"step {step}: loss {loss.item():.3f}", flush=True)
if rank == 0:
    print(*(f"{purpose}: {held.peak >> 10} KiB" for purpose, held in model.memory().items() if held.peak), sep=", ")
model.close()
