"""The peer of p0300-model.sh: the same job by PyTorch and transformers on the CPU. Prints tokens/s and tokens a CPU second, one line a
run. OMP_WAIT_POLICY=passive keeps waiting threads out of the second number.

usage: peer_model.py train|score|decode DIR BATCH LENGTH STEPS     weights and optimizer state in bf16, two threads"""
import sys
import time
import torch
from transformers import AutoModelForCausalLM

mode, path, B, L, steps = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
torch.set_num_threads(2)
model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16)
ids = (torch.arange(B * L) * 7919 % model.config.vocab_size).view(B, L)
opt = torch.optim.AdamW(model.parameters(), lr=1e-6) if mode == "train" else None


def run():
    if mode == "train":
        model(ids, labels=ids).loss.backward()
        opt.step()
        opt.zero_grad()
    elif mode == "score":
        with torch.no_grad():
            torch.log_softmax(model(ids).logits.float(), -1)
    else:
        with torch.no_grad():
            model.generate(ids[:, :32], attention_mask=torch.ones_like(ids[:, :32]), max_new_tokens=L,
                           min_new_tokens=L, do_sample=True, top_k=0, pad_token_id=0)


run()
for _ in range(steps):
    t, c = time.time(), time.process_time()
    run()
    print(f"{B * L / (time.time() - t):.1f} {B * L / (time.process_time() - c):.1f}", flush=True)
