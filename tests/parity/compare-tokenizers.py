#!/usr/bin/env python3
"""Compare ids and decoded text with Hugging Face tokenizers and tiktoken, text by text.

Usage: compare-tokenizers.py TOKBENCH TOKENIZER corpora FILE.jsonl…      every "text" of the rows, whole
       compare-tokenizers.py TOKBENCH TOKENIZER fuzz COUNT [SEED [PARTS]]        random strings of at most PARTS (24) parts

TOKBENCH is tests/perf/tokbench of the build; TOKENIZER a folder with tokenizer.json, a tokenizer.json or a .tiktoken file.
Needs the Python packages tokenizers and tiktoken in a scratch environment. Prints one line a second of work, each string
that differs, and "equal" at the end; the exit status is 1 when anything differed.
"""
import base64
import json
import os
import random
import struct
import subprocess
import sys
import time
import unicodedata

BATCH = 2000


class Ours:
    def __init__(self, tool, path):
        self.p = subprocess.Popen([tool, "-i", "-d", path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=1 << 20)

    def run(self, texts):
        """(ids, decoded) of each text. Answers are shorter than a pipe holds only by luck, so writing goes in a child."""
        data = b"".join(struct.pack("<I", len(b)) + b for b in (t.encode("utf-8") for t in texts)) + b"\xff\xff\xff\xff"
        pid = os.fork()
        if pid == 0:
            self.p.stdin.write(data)
            self.p.stdin.flush()
            os._exit(0)
        out = []
        read = self.p.stdout.read
        for _ in texts:
            n, = struct.unpack("<I", read(4))
            ids = list(struct.unpack(f"<{n}I", read(4 * n)))
            n, = struct.unpack("<I", read(4))
            out.append((ids, read(n)))
        os.waitpid(pid, 0)
        return out


class HuggingFace:
    def __init__(self, path):
        import tokenizers
        self.t = tokenizers.Tokenizer.from_file(os.path.join(path, "tokenizer.json") if os.path.isdir(path) else path)
        self.t.no_truncation()
        self.t.no_padding()
        self.specials = [t.content for t in self.t.get_added_tokens_decoder().values()]

    def run(self, texts):
        ids = [e.ids for e in self.t.encode_batch_fast(texts, add_special_tokens=False)]
        return list(zip(ids, (s.encode("utf-8") for s in self.t.decode_batch(ids, skip_special_tokens=False))))


class Tiktoken:
    def __init__(self, path):
        import tiktoken
        from tiktoken_ext import openai_public
        with open(path, "rb") as f:
            ranks = {base64.b64decode(t): int(r) for t, r in (line.split() for line in f if line.strip())}
        openai_public.load_tiktoken_bpe = lambda *_, **__: ranks
        self.t = tiktoken.Encoding(**getattr(openai_public, os.path.basename(path).removesuffix(".tiktoken"))())
        self.specials = list(self.t.special_tokens_set)

    def run(self, texts):
        out = []
        for t in texts:
            ids = self.t.encode(t, allowed_special="all")
            out.append((ids, self.t.decode_bytes(ids).decode("utf-8", "replace").encode("utf-8")))
        return out


def corpora(files):
    for file in files:
        with open(file, encoding="utf-8") as f:
            for line in f:
                yield json.loads(line)["text"]


WORDS = ("the of and to in is that for it was on are as with his they at be this from have or by one had not but what all were "
         "when we there can an your which their said if do will each about how up out them then she many some so these would other "
         "Straße naïve œuvre señor привет мир слово дела Ελληνικά שלום عربي हिन्दी ภาษาไทย 한국어 日本語 中文 东京 カタカナ ひらがな "
         "int void return struct def self import class for while printf std::vector #include == != <= >= -> ++ --").split()
SPACES = [" ", " ", " ", "  ", "   ", "\n", "\n", "\n\n", "\r\n", "\t", "\t\t", "\u00a0", "\u3000", "\u2028", "\u0085", "\x0b", "\x1c", " \n", "\n "]
TAILS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'LL", "'ſ", "’s", ".", ",", "...", "!", "?!", ")", "(", "\"", "/", "//", "/*", "_", "-", "=", "==="]


def fuzz(count, seed, specials, parts=24):
    rng = random.Random(seed)
    cats = {}
    for c in range(0x110000):
        if not 0xD800 <= c < 0xE000:
            k = unicodedata.category(chr(c))
            if k not in ("Cn", "Co") or c % 997 == 0:
                cats.setdefault(k, []).append(chr(c))
    pools = [cats[k] for k in cats if k not in ("Cn", "Co")]
    marks = cats["Mn"] + cats["Mc"]
    composed = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000 and unicodedata.decomposition(chr(c))]
    kinds = [lambda: rng.choice(WORDS), lambda: rng.choice(WORDS), lambda: rng.choice(SPACES), lambda: rng.choice(SPACES), lambda: rng.choice(TAILS),
             lambda: str(rng.randrange(10 ** rng.randrange(1, 9))), lambda: rng.choice(rng.choice(pools)),
             lambda: chr(rng.randrange(32, 127)), lambda: rng.choice("aeiounst") + rng.choice(marks), lambda: rng.choice(marks),
             lambda: rng.choice(composed), lambda: unicodedata.normalize("NFD", rng.choice(composed)),
             lambda: rng.choice(SPACES) * rng.randrange(1, 12), lambda: rng.choice(rng.choice(pools)) * rng.randrange(2, 40),
             lambda: "".join(rng.choice("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(rng.randrange(1, 20))),
             lambda: rng.choice(specials) if specials and rng.random() < 0.3 else "<|", lambda: "".join(rng.choices(cats["Lo"], k=rng.randrange(1, 8)))]
    for _ in range(count):
        few = rng.sample(kinds, rng.randrange(1, 6))
        yield "".join(rng.choice(few)() for _ in range(rng.randrange(1, parts + 1)))


def batches(texts):
    batch, size = [], 0
    for t in texts:
        batch.append(t)
        size += len(t)
        if len(batch) == BATCH or size > 2_000_000:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def main():
    tool, path, mode, *rest = sys.argv[1:]
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    theirs = Tiktoken(path) if path.endswith(".tiktoken") else HuggingFace(path)
    ours = Ours(tool, path)
    texts = corpora(rest) if mode == "corpora" else fuzz(int(rest[0]), int(rest[1]) if len(rest) > 1 else 1, theirs.specials,
                                                                  int(rest[2]) if len(rest) > 2 else 24)
    n = n_ids = bad = 0
    last = time.time()
    for batch in batches(texts):
        for t, a, b in zip(batch, ours.run(batch), theirs.run(batch)):
            n += 1
            n_ids += len(b[0])
            if a[0] != list(b[0]) or a[1] != b[1]:
                bad += 1
                if bad <= 20:
                    print(f"DIFFERENT {'ids' if a[0] != list(b[0]) else 'text'}: {t[:300]!r}\n  ours   {a[0][:40]} {a[1][:80]}\n  theirs {list(b[0])[:40]} {b[1][:80]}", flush=True)
        if time.time() - last > 60:
            last = time.time()
            print(f"{n} texts, {n_ids} ids, {bad} different", flush=True)
    print(f"{path}: {n} texts, {n_ids} ids, {bad} different: {'DIFFERENT' if bad else 'equal'}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
