"""Renders every line of CHATS.jsonl with Jinja2; prints MB/s of output by CPU time for two ways.

Usage: peer_template.py TEMPLATE.jinja CHATS.jsonl [MAX_LINES]
First: json.loads and render_jinja_template, which is what apply_chat_template(tokenize=False) does to a row. Second: the
compiled template's render alone, messages parsed beforehand. Ours always counts reading the messages from JSON.
"""
import itertools
import json
import sys
import time

import jinja2
from transformers.utils import chat_template_utils as ctu

with open(sys.argv[1], encoding="utf-8", newline="") as f:
    compiled = ctu._compile_jinja_template(f.read())
with open(sys.argv[1], encoding="utf-8", newline="") as f:
    source = f.read()
with open(sys.argv[2], encoding="utf-8") as f:
    lines = list(itertools.islice(f, int(sys.argv[3]) if len(sys.argv) > 3 else None))
chats = [json.loads(line) for line in lines]


def whole(i):
    c = json.loads(lines[i])
    return ctu.render_jinja_template(conversations=[c["messages"]], tools=c.get("tools"), chat_template=source, bos_token="<s>",
                                     eos_token="</s>")[0][0]


def bare(i):
    c = chats[i]
    return compiled.render(messages=c["messages"], tools=c.get("tools"), documents=None, add_generation_prompt=False,
                           bos_token="<s>", eos_token="</s>")


def speed(render):
    best, size = 1e9, 0
    for _ in range(2):
        size, t0 = 0, time.process_time()
        for i in range(len(chats)):
            try:
                size += len(render(i))
            except (jinja2.exceptions.TemplateError, TypeError):
                pass
        best = min(best, time.process_time() - t0)
    return size / best / 1e6


text = "".join(json.dumps(m["content"], ensure_ascii=False) for c in chats[:200] for m in c["messages"] if m.get("content"))
per_char = len(text.encode()) / len(text)
print(f"{speed(whole) * per_char:.2f} {speed(bare) * per_char:.2f}")
