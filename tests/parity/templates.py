#!/usr/bin/env python3
"""Renders generated conversations with transformers' own Jinja2 environment and with ours, and compares every byte.

Usage: templates.py --render PATH/jinja_render [-n 1000] [--seed 1] [--weird] [--only NAME] FOLDER|FILE.jinja...

Needs transformers and jinja2, no network. A conversation that Jinja2 refuses must fail here, too; the text of
raise_exception must be in our message. {% generation %} spans must agree. Exit 1 on any difference; the first ones of each
template are printed.
"""
import argparse
import datetime
import glob
import json
import os
import random
import subprocess
import sys

import jinja2
from transformers.utils import chat_template_utils as ctu

NOW = datetime.datetime(2026, 1, 15, 12, 0, 0)
NOW_S = int(NOW.replace(tzinfo=datetime.timezone.utc).timestamp())


class FixedClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


ctu.datetime = FixedClock

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
WORDS = ["hello", "the", "Zürich", "東京", "naïve", "😀", "👩‍👩‍👧‍👦", "e\u0301", "\u200b", "a", "  ", "\n", "\n\n", "\t", "<b>",
         "&amp;", "'q'", '"d"', "\\n", "{{x}}", "{% if %}", "<|im_end|>", "</s>", "</think>", "<think>", "/think", "/no_think",
         "<tool_response>", "</tool_response>", "שלום", "مرحبا", "\u00a0", "ß", "İ", "1.5", "0", "x" * 40, "[THINK]", "[/THINK]",
         "<|channel>", "<channel|>", "\r\n", "–", "\u2028", "|", "%s", "<start>", "\u3000"]
NAMES = ["get_weather", "add", "search.web", "f", "Ünï"]


class Gen:
    def __init__(self, rng, weird):
        self.r = rng
        self.weird = weird

    def text(self, n=12):
        r = self.r
        if r.random() < 0.06:
            return ""
        s = "".join(r.choice(WORDS) + r.choice([" ", "", "\n", " "]) for _ in range(r.randint(1, n)))
        if r.random() < 0.15:
            s = r.choice(["<think>\n", "<think>", ""]) + s + r.choice(["\n</think>\n\n", "</think>", "</think>\n"]) + r.choice(WORDS)
        return s

    def number(self):
        r = self.r
        return r.choice([0, 1, -1, 2.5, 1.0, 1e16, 1e-7, 123456789.125, -0.0, 10**20, 0.1, 1e22, 5e-324, 3.14159, 2**53, 1e100,
                         r.random(), r.random() * 10 ** r.randint(-20, 20), r.randint(-10**6, 10**6)])

    def value(self, depth=0):
        r = self.r
        k = r.random()
        if k < 0.4:
            return self.text(3)
        if k < 0.6:
            return self.number()
        if k < 0.72:
            return r.choice([True, False, None])
        if depth > 2:
            return "x"
        if k < 0.86:
            return [self.value(depth + 1) for _ in range(r.randint(0, 3))]
        return {r.choice(["a", "b", "type", "ключ", "items", "x y", "'", "keys", "name"]) + str(i): self.value(depth + 1)
                for i in range(r.randint(0, 3))}

    def args(self):
        r = self.r
        a = {r.choice(["city", "days", "q", "x", "ü", "items"]): self.value(0 if self.weird else 1) for _ in range(r.randint(0, 3))}
        return json.dumps(a, ensure_ascii=r.random() < 0.5) if r.random() < 0.3 else a

    def call(self):
        r = self.r
        name, args = r.choice(NAMES), self.args()
        if self.weird and r.random() < 0.1:
            return {"name": name, "arguments": args}
        c = {"type": "function", "function": {"name": name, "arguments": args}}
        if r.random() < 0.8:
            c["id"] = "".join(r.choice("abcXYZ019") for _ in range(9))
        return c

    def schema(self, depth=0):
        r = self.r
        t = r.choice(["string", "integer", "number", "boolean", "array", "object"] + ([["string", "null"]] if self.weird else []))
        s = {"type": t}
        if r.random() < 0.7:
            s["description"] = self.text(3)
        if t == "array" and r.random() < 0.8:
            s["items"] = self.schema(depth + 1) if depth < 2 else {"type": "string"}
        if t == "object" and depth < 2 and r.random() < 0.8:
            s["properties"] = {r.choice("abcd"): self.schema(depth + 1) for _ in range(r.randint(0, 2))}
            if r.random() < 0.5:
                s["required"] = list(s["properties"])
        if t == "string" and r.random() < 0.3:
            s["enum"] = [r.choice(WORDS) for _ in range(r.randint(1, 3))]
        if r.random() < 0.2:
            s["default"] = self.value(2)
        if r.random() < 0.1:
            s["nullable"] = r.random() < 0.5
        if r.random() < 0.1:
            s["minimum"] = self.number()
        return s

    def tool(self):
        r = self.r
        f = {"name": r.choice(NAMES), "description": self.text(4)}
        if r.random() < 0.9:
            props = {r.choice(["city", "days", "q", "unit"]): self.schema() for _ in range(r.randint(0, 3))}
            f["parameters"] = {"type": "object", "properties": props}
            if r.random() < 0.7:
                f["parameters"]["required"] = [p for p in props if r.random() < 0.6]
        if r.random() < 0.1:
            f["return"] = {"type": "string"}
        return {"type": "function", "function": f}

    def content(self):
        r = self.r
        if self.weird:
            k = r.random()
            if k < 0.1:
                return None
            if k < 0.3:
                return [self.part() for _ in range(r.randint(0, 3))]
            if k < 0.35:
                return self.value()
        return self.text()

    def part(self):
        r = self.r
        k = r.random()
        if k < 0.8:
            return {"type": "text", "text": self.text(4)}
        if k < 0.9:
            return {"type": "image"}
        return {"type": "thinking", "thinking": self.text(3)}

    def plain_chat(self):
        """user, assistant, user …: what templates that check the alternation of roles accept."""
        r = self.r
        out = [{"role": "system", "content": self.text()}] if r.random() < 0.4 else []
        for i in range(r.randint(1, 6)):
            m = {"role": "assistant" if i % 2 else "user", "content": self.content()}
            if i % 2 and r.random() < 0.3:
                m["reasoning_content"] = self.text(5)
            out.append(m)
        return out

    def chat(self):
        r = self.r
        if r.random() < 0.35:
            return self.plain_chat()
        out = []
        if r.random() < 0.5:
            out.append({"role": r.choice(["system"] * 9 + ["developer"]), "content": self.content()})
        for _ in range(r.randint(0 if r.random() < 0.05 else 1, 4)):
            if r.random() < 0.95:
                out.append({"role": "user", "content": self.content()})
            steps = r.randint(0, 3) if r.random() < 0.4 else 0
            for _ in range(steps):
                m = {"role": "assistant", "content": r.choice(["", self.content()])}
                m["tool_calls"] = [self.call() for _ in range(r.choice([1, 1, 1, 2, 3]))]
                if r.random() < 0.4:
                    m["reasoning_content"] = self.text(5)
                out.append(m)
                for c in m["tool_calls"]:
                    t = {"role": "tool", "content": self.content()}
                    if "id" in c and r.random() < 0.9:
                        t["tool_call_id"] = c["id"]
                    if r.random() < 0.7:
                        t["name"] = c.get("function", c)["name"]
                    out.append(t)
            if r.random() < 0.8:
                m = {"role": "assistant", "content": self.content()}
                if r.random() < 0.3:
                    m[r.choice(["reasoning_content", "reasoning_content", "thinking", "reasoning"])] = self.text(5)
                if self.weird and r.random() < 0.1:
                    m["tool_calls"] = r.choice([[], None])
                out.append(m)
        return out

    def case(self, source):
        r = self.r
        tools = [self.tool() for _ in range(r.randint(1, 3))] if r.random() < 0.4 else ([] if r.random() < 0.05 else None)
        kwargs = {"add_generation_prompt": r.random() < 0.5}
        for name, values in (("enable_thinking", [True, False]), ("thinking", [True, False]), ("reasoning_effort", ["low", "high"]),
                             ("date_string", ["04 Jul 2025"]), ("builtin_tools", [["browser"], ["browser", "python"]]),
                             ("tools_in_user_message", [True, False]), ("truncate_history_thinking", [True, False]),
                             ("preserve_thinking", [True, False]), ("clear_thinking", [True, False]),
                             ("documents", [[{"title": "t", "text": "u", "doc_id": 1}]]), ("model_identity", ["I am."]),
                             ("available_tools", [["a"]]), ("xml_tools", [tools or []]), ("low_effort", [True])):
            if name in source and r.random() < 0.3:
                kwargs[name] = r.choice(values)
        return {"messages": self.chat(), "tools": tools, "kwargs": kwargs}


def reference(source, case, marked):
    try:
        text, gen = ctu.render_jinja_template(conversations=[json.loads(json.dumps(case["messages"]))], tools=case["tools"],
                                              chat_template=source, return_assistant_tokens_mask=marked, **SPECIAL,
                                              **case["kwargs"])
        return text[0], [list(g) for g in gen[0]] if marked else None, None
    except Exception as e:  # whatever the template makes Python raise
        own = type(e) is jinja2.exceptions.TemplateError
        return None, None, (type(e).__name__, str(e) if own else None, str(e))


def compare(path, args):
    with open(path, encoding="utf-8", newline="") as f:
        source = f.read()
    marked = "endgeneration" in source
    g = Gen(random.Random(f"{args.seed} {os.path.basename(path)}"), args.weird)
    cases = [g.case(source) for _ in range(args.n)]
    sp = os.path.join(args.tmp, "special.json")
    with open(sp, "w") as f:
        json.dump(SPECIAL, f)
    inp = "".join(json.dumps(c, ensure_ascii=False) + "\n" for c in cases)
    got = subprocess.run([args.render, path, sp, str(NOW_S)], input=inp.encode("utf-8", "surrogatepass"), capture_output=True)
    lines = got.stdout.decode().split("\n")
    bad = failed = 0
    for i, c in enumerate(cases):
        text, gen, error = reference(source, c, marked)
        ours = json.loads(lines[i]) if i < len(lines) and lines[i] else {"error": "no answer: " + got.stderr.decode()[-300:]}
        why = None
        if error:
            failed += 1
            if "error" not in ours:
                why = f"Jinja2 raises {error[0]}: {error[2][:150]}; we rendered"
            elif error[1] is not None and error[1][:500] not in ours["error"]:
                why = f"message {error[1]!r} is not in {ours['error']!r}"
        elif "error" in ours:
            why = "we fail: " + ours["error"]
        elif ours["text"] != text:
            k = next((k for k, (a, b) in enumerate(zip(ours["text"], text)) if a != b), min(len(text), len(ours["text"])))
            why = f"differs at {k}: {ours['text'][max(0, k - 40):k + 60]!r} is not {text[max(0, k - 40):k + 60]!r}"
        elif gen is not None:
            flat = [len(text[:x].encode()) for s in gen for x in s]
            if flat != ours["gen"]:
                why = f"generation spans {ours['gen']} are not {flat}"
        if why:
            bad += 1
            if bad <= args.show:
                print(f"{os.path.basename(path)} case {i}: {why}")
                if args.dump:
                    print(json.dumps(c, ensure_ascii=False))
    print(f"{os.path.basename(path)}: {len(cases)} conversations, {failed} refused by Jinja2, {bad} different")
    return bad


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--render", required=True)
    p.add_argument("-n", type=int, default=1000)
    p.add_argument("--seed", default="1")
    p.add_argument("--weird", action="store_true")
    p.add_argument("--only")
    p.add_argument("--show", type=int, default=3)
    p.add_argument("--dump", action="store_true")
    p.add_argument("--tmp", default="/tmp")
    p.add_argument("path", nargs="+")
    args = p.parse_args()
    files = [f for q in args.path for f in (sorted(glob.glob(os.path.join(q, "*.jinja"))) if os.path.isdir(q) else [q])]
    bad = sum(compare(f, args) for f in files if not args.only or args.only in f)
    print(f"{len(files)} templates, {bad} differences")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
