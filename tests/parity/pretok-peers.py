#!/usr/bin/env python3
"""Opens what skyrl-pretok wrote with the readers of its peers and compares ids and masks.

usage: pretok-peers.py PREFIX ARROW_DIR MDS_DIR
    skyrl-pretok -t DIR -o PREFIX chats.jsonl
    skyrl-pretok convert --to arrow -o ARROW_DIR PREFIX
    skyrl-pretok convert --to mds -o MDS_DIR PREFIX

Needs numpy, torch, datasets, and, installed with pip --no-deps: skyrl==0.4.0, megatron-core, mosaicml-streaming. A peer that does not
import is named and left out. Recorded run: skyrl 0.4.0, datasets 5.2.0, megatron-core 0.16.1 (mosaicml-streaming was left out)
on 36,949 conversations of 12,532,433 tokens: all ids and masks equal."""
import importlib.util, json, sys, types
import numpy as np

prefix, arrow, mds = sys.argv[1:4]
manifest = json.load(open(prefix + ".json"))
want = np.fromfile(prefix + ".bin", dtype="<u2" if manifest["dtype"] == "uint16" else "<i4")
want_mask = np.fromfile(prefix + ".mask.bin", dtype=np.uint8)
failed = 0


def check(name, rows):
    global failed
    ids, mask, n = [], [], 0
    for i, m in rows:
        ids.append(np.asarray(i))
        mask.append(np.asarray(m))
        n += 1
    ok = n == manifest["rows"] and np.array_equal(np.concatenate(ids), want) and np.array_equal(np.concatenate(mask), want_mask)
    failed += not ok
    print(f"{'ok' if ok else 'NOT EQUAL'} {name}: {n} rows")


def skyrl():
    root = importlib.util.find_spec("skyrl").submodule_search_locations[0] + "/train/dataset"
    package = types.ModuleType("skyrl.train.dataset")       # its __init__ wants all of the trainer
    package.__path__ = [root]
    sys.modules["skyrl.train.dataset"] = package
    if importlib.util.find_spec("loguru") is None:
        log = types.ModuleType("loguru")
        log.logger = type("Quiet", (), {"__getattr__": lambda self, name: lambda *a, **k: None})()
        sys.modules["loguru"] = log
    from skyrl.train.dataset.pretokenized import load_from_pretokenized
    for row in load_from_pretokenized(arrow, None):
        yield row["input_ids"], [0] * (len(row["input_ids"]) - row["num_actions"]) + list(row["loss_mask"])


def datasets():
    from datasets import load_from_disk
    for row in load_from_disk(arrow):
        yield row["input_ids"], row["loss_mask"]


def megatron():
    from megatron.core.datasets.indexed_dataset import IndexedDataset
    tokens, mask = IndexedDataset(prefix), IndexedDataset(prefix + ".mask")
    for i in range(len(tokens)):
        yield tokens[i], mask[i]


def streaming():
    from streaming.base.format.mds.reader import MDSReader
    for shard in json.load(open(mds + "/index.json"))["shards"]:
        reader = MDSReader.from_json(mds, None, dict(shard))
        for i in range(reader.size):
            row = reader[i]
            yield row["tokens"], row["loss_mask"]


for peer in skyrl, datasets, megatron, streaming:
    try:
        check(peer.__name__, peer())
    except ImportError as e:
        print(f"left out {peer.__name__}: {e}")
sys.exit(failed > 0)
