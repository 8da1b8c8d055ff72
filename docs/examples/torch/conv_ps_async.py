"""A conv net on Fashion-MNIST through parameter servers, where nobody waits for a slower worker:

python -m psring.run --nproc 2 conv_ps_async.py [STEPS]
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
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
model = psring.torch.ParameterServer(model, optimizer, servers=2, consistency="asp")

for step, (x, y) in zip(range(steps), batches):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)  # a forward pass waits for each unit's new values
    loss.backward()  # pushes each unit's gradient when it is complete
    optimizer.step()  # ends the step: the servers apply SGD to each push
    if rank == 0 and step % 50 == 0:
        print(f"step {step}: loss {loss.item():.3f}", flush=True)

model.finish()  # waits for the others' last steps: then all workers have the same values
if rank == 0:
    print(f"accuracy {fashion.accuracy(model):.3f}")
model.close()
