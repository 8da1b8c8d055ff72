"""A conv net on Fashion-MNIST with DistributedDataParallel over psring:

python -m psring.run --nproc 2 conv_ddp.py [STEPS]
"""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.utils.data import DataLoader, DistributedSampler

import fashion
import psring.torch  # noqa: F401 - it registers the backend

dist.init_process_group("psring")
rank, workers = dist.get_rank(), dist.get_world_size()
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 300
torch.manual_seed(0)
data = fashion.load("train")
batches = DataLoader(data, 64, sampler=DistributedSampler(data, workers, rank))

model = torch.nn.parallel.DistributedDataParallel(fashion.net())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for step, (x, y) in zip(range(steps), batches):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    if rank == 0 and step % 50 == 0:
        print(f"step {step}: loss {loss.item():.3f}", flush=True)

if rank == 0:
    print(f"accuracy {fashion.accuracy(model.module):.3f}")
