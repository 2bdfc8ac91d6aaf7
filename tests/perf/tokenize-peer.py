#!/usr/bin/env python3
"""One pass of a peer tokenizer over texts in memory: tokenize-peer.py PEER TOKENIZER_DIR DOCS

PEER is tokenizers, tiktoken, fastokens, gigatoken or quicktok; DOCS as tests/perf/tokbench reads them. A fresh tokenizer
object, so its caches are cold; loading is not timed. Prints MB per second of wall clock and of CPU, and the number of ids.
"""
import os
import struct
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"


def load(peer, path):
    file = os.path.join(path, "tokenizer.json")
    if peer == "tokenizers":
        import tokenizers
        t = tokenizers.Tokenizer.from_file(file)
        return lambda texts: [len(e.ids) for e in t.encode_batch_fast(texts, add_special_tokens=False)]
    if peer == "fastokens":
        import fastokens
        t = fastokens.Tokenizer.from_file(file)
        return lambda texts: [len(e.ids if hasattr(e, "ids") else e) for e in t.encode_batch(texts)]
    if peer == "gigatoken":
        import gigatoken
        t = gigatoken.Tokenizer(file)
        return lambda texts: [len(e) for e in t.encode_batch(texts)]
    import quicktok
    t = quicktok.get_encoding("qwen3") if hasattr(quicktok, "get_encoding") else quicktok.Tokenizer("qwen3")
    return lambda texts: [len(e) for e in t.encode_batch(texts)]


def main():
    peer, path, docs = sys.argv[1:]
    with open(docs, "rb") as f:
        data = f.read()
    texts, at = [], 0
    while at < len(data):
        n, = struct.unpack_from("<I", data, at)
        texts.append(data[at + 4:at + 4 + n].decode("utf-8"))
        at += 4 + n
    encode = load(peer, path)
    wall, cpu = time.perf_counter(), time.process_time()
    n = sum(encode(texts))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{peer} {len(data) / 1e6 / wall:.1f} {len(data) / 1e6 / cpu:.1f} {n}")


if __name__ == "__main__":
    main()
