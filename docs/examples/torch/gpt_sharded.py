"""A GPT on the bytes of a text, sharded among the workers (ZeRO stage 3, FSDP).

python -m psring.run --nproc 2 gpt_sharded.py TEXT [STEPS]
"""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F

import psring.torch
from gpt import GPT, batch, block, read

dist.init_process_group("psring")
rank = dist.get_rank()
text = read(sys.argv[1])
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 200
torch.manual_seed(0)
model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model = psring.torch.Sharded(model, optimizer, stage=3, auto_wrap_policy=block)

draw = torch.Generator().manual_seed(rank)
for step in range(steps):
    x, y = batch(text, draw)
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    model.clip_grad_norm_(1.0)
    optimizer.step()
    if rank == 0 and step % 20 == 0:
        print(f"step {step}: loss {loss.item():.3f}", flush=True)
state = model.module.state_dict()  # of the whole model, on all workers
if rank == 0:
    torch.save(state, "gpt.pt")
