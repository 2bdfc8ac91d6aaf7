#!/usr/bin/env python3
"""Texts of a JSONL file as tests/perf/tokbench reads them: make-docs.py IN.jsonl OUT.docs [MB]

Each row's "text" follows its length in bytes (uint32, little-endian); stops after MB million bytes.
"""
import json
import struct
import sys


def main():
    source, target, *limit = sys.argv[1:]
    room = float(limit[0]) * 1e6 if limit else float("inf")
    with open(source, encoding="utf-8") as f, open(target, "wb") as out:
        for line in f:
            text = json.loads(line)["text"].encode("utf-8")
            out.write(struct.pack("<I", len(text)) + text)
            room -= len(text)
            if room <= 0:
                break


if __name__ == "__main__":
    main()
