#!/usr/bin/env python3
"""Write the small tokenizers of this folder with the answers of Hugging Face tokenizers.

Usage: make-cases.py          needs the package tokenizers in a scratch environment; writes NAME.json beside itself

Each file is {"tokenizer": a tokenizer.json, "texts": [...], "ids": [...], "special": [...] (add_special_tokens), "decoded":
[...], "skipped": [...] (skip_special_tokens)}. The vocabularies are tiny and trained here; every kind of step that
libcore/text knows occurs in some file.
"""
import collections
import json
import os

import tokenizers

HERE = os.path.dirname(os.path.abspath(__file__))
TEXT = """the cat sat on the mat and the dog sat on the log. they didn't see the other cats, but there were 12 of them (or 13).
for (int i = 0; i < n; i++) { sum += a[i]; }  // the sum of the array
Übung macht den Meister, naïve café, déjà vu. 日本語の文字 中文文字 привет привет """ * 3

GPT2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
LLAMA3 = ("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
          "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")

TEXTS = ["", " ", "the cat", " the cat sat", "They didn't see THE other cats", "it's IT'S we'll", "12345 6 789", "a  b   c", "a\n\nb \n c\n", "for (int i = 0; i < n; i++) {\n\t\tx;\n}",
         "naïve café", "nai\u0308ve cafe\u0301 e\u0301\u0323", "日本語の文字、中文文字。", "の文字 の中文文字を見る。文字文字 日本語の文字の", "приветы привет ", "zz zzz", "привет мир", "😀 👍🏽", "<s>the cat</s>", "<s> the <mask>  cat </s> sat", "x<mask>y", "the <word> cat<word>s <word>",
         "ABC <Up> abc <up>", "\u2581the\u2581cat", "a\u00a0b\u3000c", "\t tab \t", "...!?", "x.y,z", "the-final--countdown", "q\u0307\u0323", "\u212b \uac00\u11a8", "ﬁ ½ Ⅷ", " lead", "trail ",
         "\u0000a\u0001".replace("\u0000", "\u0002"), "don't.don't", "ab" * 60, " " * 70 + "x", "z" * 100, "the" * 40]


def byte_map():
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    chars, n = {}, 0
    for b in range(256):
        chars[b] = chr(b) if b in keep else chr(256 + n)
        n += b not in keep
    return chars


def train(words, n_merges, alphabet):
    """Plain BPE: words is {tuple of symbols: count}."""
    vocab = {s: i for i, s in enumerate(alphabet)}
    merges = []
    for _ in range(n_merges):
        pairs = collections.Counter()
        for w, c in words.items():
            for p in zip(w, w[1:]):
                pairs[p] += c
        if not pairs:
            break
        best = max(pairs, key=lambda p: (pairs[p], p))
        merges.append(best)
        vocab.setdefault("".join(best), len(vocab))
        new = {}
        for w, c in words.items():
            out, i = [], 0
            while i < len(w):
                if w[i:i + 2] == best:
                    out.append("".join(best))
                    i += 2
                else:
                    out.append(w[i])
                    i += 1
            new[tuple(out)] = new.get(tuple(out), 0) + c
        words = new
    return vocab, merges


def bytes_model(n=110, drop=(), **more):
    chars = byte_map()
    pre = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    words = collections.Counter(tuple(w) for w, _ in pre.pre_tokenize_str(TEXT))
    vocab, merges = train(dict(words), n, [chars[b] for b in range(256) if b not in drop])
    return dict({"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                 "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab, "merges": [list(m) for m in merges]}, **more)


def spm_model(n=110, **more):
    text = TEXT.replace("\n", " ").replace(" ", "\u2581")
    words = collections.Counter(tuple(w) for w in text.replace("\u2581", " \u2581").split(" ") if w)
    alphabet = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + sorted(set(text))
    vocab, merges = train(dict(words), n, alphabet)
    return dict({"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
                 "fuse_unk": True, "byte_fallback": True, "vocab": vocab, "merges": [" ".join(m) for m in merges]}, **more)


def word_model(prefix, suffix, n=60, **more):
    """Characters with a continuing prefix or an end-of-word suffix."""
    words = collections.Counter()
    for w in TEXT.lower().split():
        chars = [(prefix if i and prefix else "") + c + (suffix if i == len(w) - 1 and suffix else "") for i, c in enumerate(w)]
        words[tuple(chars)] += 1
    alphabet = ["<unk>"] + sorted({s for w in words for s in w})
    vocab = {s: i for i, s in enumerate(alphabet)}
    merges = []
    for _ in range(n):
        pairs = collections.Counter()
        for w, c in words.items():
            for p in zip(w, w[1:]):
                pairs[p] += c
        best = max(pairs, key=lambda p: (pairs[p], p))
        joined = best[0] + best[1][len(prefix or ""):]
        merges.append(list(best))
        vocab.setdefault(joined, len(vocab))
        new = collections.Counter()
        for w, c in words.items():
            out, i = [], 0
            while i < len(w):
                hit = w[i:i + 2] == best
                out.append(joined if hit else w[i])
                i += 2 if hit else 1
            new[tuple(out)] += c
        words = new
    return dict({"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": prefix, "end_of_word_suffix": suffix,
                 "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": merges}, **more)


def added(content, vocab, special=False, **flags):
    return dict({"id": None, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": not special,
                 "special": special}, **flags)


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def seq(key, *parts):
    return {"type": "Sequence", key: list(parts)}


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
TOKENS = [("<s>", dict(special=True)), ("</s>", dict(special=True)), ("<mask>", dict(special=True, lstrip=True, rstrip=True)),
          ("<word>", dict(single_word=True)), ("<Up>", dict(normalized=True))]


def template(vocab, n):
    return {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": "</s>", "type_id": 0}}], "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [n], "tokens": ["<s>"]}, "</s>": {"id": "</s>", "ids": [n + 1], "tokens": ["</s>"]}}}


def cases():
    b, s = bytes_model(), spm_model()
    # tokens that no merge makes: whole pieces become them with ignore_merges, parts of pieces do not
    whole = dict(b["vocab"])
    for word in ("文字", "中文文字", "日本語の文字", "привет", "zz", " the cat"):
        whole.setdefault("".join(byte_map()[x] for x in word.encode()), len(whole))
    bd = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    sd = seq("decoders", {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
             {"type": "Strip", "content": " ", "start": 1, "stop": 0})
    yield "llama3-like", dict(model=dict(b, ignore_merges=True, vocab=whole), pre_tokenizer=seq("pretokenizers", split(LLAMA3), BYTES), decoder=bd, post=True)
    yield "qwen-like", dict(model=b, normalizer={"type": "NFC"}, pre_tokenizer=seq("pretokenizers", split(QWEN2), BYTES), decoder=bd)
    yield "gpt2-prefix-space", dict(model=b, pre_tokenizer={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, decoder=bd)
    yield "digits-missing-bytes", dict(model=bytes_model(drop=(0xf0, 0x9f, 0x02, 0x7a)), decoder=bd, pre_tokenizer=seq(
        "pretokenizers", {"type": "Digits", "individual_digits": True}, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}))
    yield "normalizers", dict(model=b, normalizer=seq("normalizers", {"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"}, {"type": "Strip", "strip_left": True, "strip_right": True},
                              {"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": " "}), pre_tokenizer=seq("pretokenizers", split(LLAMA3), BYTES), decoder=bd)
    yield "compatibility", dict(model=b, normalizer={"type": "NFKC"}, pre_tokenizer=seq("pretokenizers", split("\\p{P}", "MergedWithPrevious"), split("-", "MergedWithNext", kind="String"), BYTES), decoder=bd)
    yield "contiguous", dict(model=b, pre_tokenizer=seq("pretokenizers", split("[-.]", "Contiguous"), split("\\w+|[^\\w\\s]+", "Removed", True), BYTES), decoder=bd)
    yield "punctuation-words", dict(model=b, pre_tokenizer=seq("pretokenizers", {"type": "Punctuation", "behavior": "Isolated"}, {"type": "Digits", "individual_digits": False}, {"type": "WhitespaceSplit"}, BYTES))
    yield "llama2-like", dict(model=s, normalizer=seq("normalizers", {"type": "Prepend", "prepend": "\u2581"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}), decoder=sd, post=True)
    yield "gemma-like", dict(model=dict(s, fuse_unk=False), normalizer={"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
                             pre_tokenizer=split(" ", "MergedWithPrevious", kind="String"), decoder=sd)
    yield "metaspace", dict(model=s, pre_tokenizer={"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True},
                            decoder={"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True})
    yield "word-suffix", dict(model=word_model(None, "</w>"), normalizer={"type": "Lowercase"}, pre_tokenizer={"type": "Whitespace"}, decoder={"type": "BPEDecoder", "suffix": "</w>"})
    yield "word-prefix", dict(model=word_model("##", None, fuse_unk=True), normalizer={"type": "Lowercase"}, pre_tokenizer={"type": "CharDelimiterSplit", "delimiter": " "},
                              decoder={"type": "WordPiece", "prefix": "##", "cleanup": True})


def main():
    for name, part in cases():
        n = len(part["model"]["vocab"])
        vocab = part["model"]["vocab"]
        tokens = []
        for content, flags in TOKENS:
            t = added(content, vocab, **flags)
            t["id"] = vocab.get(content, n + sum(x["content"] not in vocab for x in tokens))
            tokens.append(t)
        tokens.sort(key=lambda t: t["id"])
        ids = {t["content"]: t["id"] for t in tokens}
        post = template(vocab, 0) if part.get("post") else None
        if post:
            for key in ("<s>", "</s>"):
                post["special_tokens"][key]["ids"] = [ids[key]]
        full = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": part.get("normalizer"),
                "pre_tokenizer": part.get("pre_tokenizer"), "post_processor": post, "decoder": part.get("decoder"), "model": part["model"]}
        t = tokenizers.Tokenizer.from_str(json.dumps(full))
        plain = [t.encode(x, add_special_tokens=False).ids for x in TEXTS]
        special = [t.encode(x, add_special_tokens=True).ids for x in TEXTS]
        out = {"tokenizer": full, "texts": TEXTS, "ids": plain, "special": special,
               "decoded": [t.decode(x, skip_special_tokens=False) for x in special], "skipped": [t.decode(x, skip_special_tokens=True) for x in special]}
        with open(os.path.join(HERE, name + ".json"), "w", encoding="utf-8") as f:
            json.dump(out, f, ensure_ascii=False, separators=(",", ":"))
            f.write("\n")
        print(name, n, sum(map(len, plain)))


if __name__ == "__main__":
    main()
