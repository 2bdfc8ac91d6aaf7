#!/usr/bin/env python3
"""Makes tests/parity/models/{llama,qwen2,qwen3}: tiny random models with the values that transformers computes for them.

usage: make-models.py OUTDIR      needs torch, transformers, safetensors; the values in the tree came from
                                  torch 2.11.0, transformers 5.24.0, eager attention, float32, one thread

Each folder holds config.json, model.safetensors (bf16), golden.safetensors with the arrays that tests/unit/model_golden.c
reads: sN.ids, sN.mask, sN.logits, sN.logprob, sN.hidden, sN.final, gen.prompt, gen.tokens, gen.logits, packed.*, loss, grad.NAME."""
import json, os, sys
import torch
from safetensors.torch import save_file, load_file
from transformers import AutoConfig, AutoModelForCausalLM

BASE = dict(vocab_size=33, hidden_size=12, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1,
            intermediate_size=20, max_position_embeddings=256, hidden_act="silu", bos_token_id=1, eos_token_id=2)
MODELS = {
    "llama": dict(BASE, architectures=["LlamaForCausalLM"], model_type="llama", head_dim=6, rms_norm_eps=1e-5,
                  rope_theta=500.0, tie_word_embeddings=True, torch_dtype="bfloat16",
                  rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                    original_max_position_embeddings=32)),
    "qwen2": dict(BASE, architectures=["Qwen2ForCausalLM"], model_type="qwen2", num_attention_heads=2, rms_norm_eps=1e-6,
                  tie_word_embeddings=False, dtype="bfloat16", use_sliding_window=False, eos_token_id=[2, 3],
                  rope_parameters=dict(rope_type="linear", rope_theta=1000.0, factor=4.0)),
    "qwen3": dict(BASE, architectures=["Qwen3ForCausalLM"], model_type="qwen3", head_dim=8, rms_norm_eps=1e-6,
                  num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True, dtype="bfloat16",
                  rope_parameters=dict(rope_type="yarn", rope_theta=1000.0, factor=4.0,
                                       original_max_position_embeddings=64)),
}


def log_probs(logits, ids):
    return torch.log_softmax(logits.float(), -1)[:-1].gather(1, ids[1:, None]).squeeze(1)


def make(name, config, out):
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
        f.write("\n")
    torch.manual_seed(sum(map(ord, name)))
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(out), attn_implementation="eager").float().eval()
    with torch.no_grad():
        for key, p in model.named_parameters():
            centre = 1.0 if "norm" in key else 0.0
            scale = 0.3 if p.dim() == 1 else 0.8 / p.shape[1] ** 0.5 if "embed" not in key else 0.7
            p.copy_((centre + scale * torch.randn_like(p)).bfloat16().float())
    weights = {k: v.detach().bfloat16().contiguous() for k, v in model.named_parameters()}
    save_file(weights, os.path.join(out, "model.safetensors"), metadata={"format": "pt"})

    gold, total, count = {}, 0.0, 0
    ids = [torch.randint(3, 33, (n,)) for n in (1, 7, 70)]
    for n, s in enumerate(ids):
        r = model(s[None], output_hidden_states=True)
        mask = (torch.rand(len(s)) < 0.7).to(torch.uint8)
        mask[0] = 0
        lp = log_probs(r.logits[0], s)
        gold[f"s{n}.ids"], gold[f"s{n}.mask"] = s.int(), mask
        gold[f"s{n}.logits"], gold[f"s{n}.logprob"] = r.logits[0][-8:], lp
        layers = []
        x = model.model.embed_tokens(s[None])
        hook = [b.register_forward_hook(lambda m, i, o: layers.append(o if torch.is_tensor(o) else o[0]))
                for b in model.model.layers]
        model(s[None])
        for h in hook:
            h.remove()
        if n == 1:
            gold["s1.hidden"] = torch.cat([x] + layers)
            gold["s1.final"] = r.hidden_states[-1][0]
        if n:
            total, count = total - (lp * mask[1:]).sum(), count + int(mask.sum())
    loss = total / count
    loss.backward()
    gold["loss"] = loss.reshape(1)
    for key, p in model.named_parameters():
        gold["grad." + key] = p.grad
    gold["gen.prompt"] = torch.randint(3, 33, (5,)).int()
    seq, tokens, logits = gold["gen.prompt"].long(), [], []
    for _ in range(12):
        z = model(seq[None]).logits[0, -1]
        logits.append(z)
        tokens.append(int(z.argmax()))
        seq = torch.cat([seq, torch.tensor(tokens[-1:])])
    gold["gen.tokens"], gold["gen.logits"] = torch.tensor(tokens).int(), torch.stack(logits)
    gold = {k: v.detach().contiguous() for k, v in gold.items()}
    save_file(gold, os.path.join(out, "golden.safetensors"))


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name, config in MODELS.items():
        make(name, config, os.path.join(sys.argv[1], name))
