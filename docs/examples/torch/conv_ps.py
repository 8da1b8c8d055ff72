"""A conv net on Fashion-MNIST through parameter servers, all workers in step:

python -m psring.run --nproc 2 conv_ps.py [STEPS]
"""

import os
import sys

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, DistributedSampler

import fashion
import psring.torch

rank, workers = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 300
torch.manual_seed(0)
data = fashion.load("train")
batches = DataLoader(data, 64, sampler=DistributedSampler(data, workers, rank))

model = fashion.net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model = psring.torch.ParameterServer(model, optimizer, servers=2)

for step, (x, y) in zip(range(steps), batches):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)  # a forward pass waits for each unit's new values
    loss.backward()  # pushes each unit's gradient when it is complete
    optimizer.step()  # ends the step: the servers apply AdamW
    if rank == 0 and step % 50 == 0:
        print(f"step {step}: loss {loss.item():.3f}", flush=True)

if rank == 0:
    print(f"accuracy {fashion.accuracy(model):.3f}")
model.close()
