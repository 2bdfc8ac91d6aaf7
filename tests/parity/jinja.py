#!/usr/bin/env python3
"""Compares random little templates (expressions, filters, tests, methods, statements) with transformers' Jinja2.

Usage: jinja.py --render PATH/jinja_render [-n 20000] [--seed 1]

Both must give the same text, or both an error. Exit 1 on any difference.
"""
import argparse
import datetime
import json
import os
import random
import subprocess
import sys

from transformers.utils import chat_template_utils as ctu

MESSAGES = [
    {"role": "system", "content": "Be brief.\n"},
    {"role": "user", "content": "naïve <b>&</b> 'q' \"d\" Straße\n 東京 😀  "},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {
        "a": 1, "B": [1, 2.5, "x"], "c": {"k": None, "t": True}, "d": "y\nz"}}}]},
    {"role": "tool", "content": "42"},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\nok", "n": 3, "x": 1e-5},
]
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"b": {"type": "number"},
                                                                                               "a": {"type": "string"}}}}}]


class Gen:
    def __init__(self, rng):
        self.r = rng

    def pick(self, *xs):
        return self.r.choice(xs)

    def string(self):
        return self.pick("'abc'", "''", "' x y '", "'a,b,,c'", "'naïve Straße'", "\"it's\"", "'\\n\\tq'", "'ABC def'", "'éÉ 東京'",
                         "'12'", "' -7 '", "'1.50'", "'a-b (c) d'", "'x' * 3", "'{} {x!r}'", "'%s-%d'", "'<&>'", "'a\\u00e9\\x41'",
                         "messages[1].content", "messages[4]['content']", "messages[0].role", "'\\'\"'", "'aXbXc'", "'line1\\nline2\\n\\nl'")

    def num(self):
        return self.pick("0", "1", "-1", "2", "3", "7", "10", "2.5", "-0.5", "1e3", "1.0", "100000000000000000000.0", "messages|length",
                         "messages[4].n", "0.1 + 0.2", "5 // 2", "-7 // 2", "-7 % 3", "7.5 % 2", "2 ** 10", "2 ** -1", "1 / 3", "1_000", "0x1f",
                         "messages[4].x", "true", "10 ** 9")

    def seq(self):
        return self.pick("[1, 2, 3]", "[]", "['b', 'A', 'c', 'a']", "[3, 1, 2, 1]", "(1, 'a')", "range(5)", "range(3, 0, -1)", "messages",
                         "[[1, 2], [3]]", "messages[2].tool_calls", "'abc'", "{'b': 1, 'a': 2}", "[{'n': 1, 'v': 'x'}, {'n': 0, 'v': 'Y'}]",
                         "[none, 1, '', 'x', 0]", "messages[1:]", "messages[::-1]", "{'k': [1]}.items()", "[1.0, 1, true]", "(1,)",
                         "messages|map(attribute='role')|list", "[1, 2, 3][1:]", "'a b c'.split()")

    def mapping(self):
        return self.pick("{'b': 1, 'a': 2}", "{}", "messages[2].tool_calls[0].function.arguments", "{'x': {'y': [1, none]}}", "messages[4]",
                         "tools[0]", "{1: 'a', 'B': 2}", "dict(z=1, y='q')", "{'items': 1, 'k': 2}")

    def value(self, d=0):
        k = self.r.random()
        if d > 2 or k < 0.25:
            return self.pick(self.string(), self.num(), self.seq(), self.mapping(), "none", "true", "false", "undefined_thing",
                             "messages[0].nothing", "messages[99]")
        if k < 0.45:
            return self.filtered(d + 1)
        if k < 0.6:
            return self.method(d + 1)
        if k < 0.7:
            return self.binary(d + 1)
        if k < 0.78:
            return f"({self.test(d + 1)})"
        if k < 0.84:
            return f"({self.value(d + 1)} if {self.value(d + 1)} else {self.value(d + 1)})"
        if k < 0.9:
            return self.sub(d + 1)
        return self.pick(f"[{self.value(d + 1)}, {self.value(d + 1)}]", f"{{'k': {self.value(d + 1)}}}", f"({self.value(d + 1)}, 1)",
                         f"not {self.value(d + 1)}", f"-{self.num()}", f"({self.value(d + 1)} ~ {self.value(d + 1)})")

    def filtered(self, d):
        s = lambda f: f"({self.string() if self.r.random() < .8 else self.value(d)})|{f}"
        q = lambda f: f"({self.seq() if self.r.random() < .85 else self.value(d)})|{f}"
        m = lambda f: f"({self.mapping() if self.r.random() < .85 else self.value(d)})|{f}"
        n = lambda f: f"({self.num() if self.r.random() < .8 else self.value(d)})|{f}"
        return self.pick(
            s("trim"), s("trim('a ')"), s("upper"), s("lower"), s("capitalize"), s("title"), s("length"), s("replace('a', 'ZZ')"),
            s("replace('', '-')"), s("replace('b', 'Y', 1)"), s("indent"), s("indent(2, true)"), s("indent('> ', first=true, blank=true)"),
            s("int"), s("int(default=9)"), s("float"), s("string"), s("list"), s("first"), s("last"), s("reverse"), s("e"), s("safe"),
            s("truncate(5)"), s("truncate(6, true, '~', 0)"), s("wordcount"), s("center(12)"), s("default('D')"), s("d('D', true)"),
            s("tojson"), s("tojson(ensure_ascii=true)"), s("count"), s("format('p', 3)"), s("forceescape"),
            q("length"), q("first"), q("last"), q("list"), q("join"), q("join(', ')"), q("sort"), q("sort(reverse=true)"), q("unique|list"),
            q("reverse|list"), q("sum"), q("min"), q("max"), q("map('string')|list"), q("map('upper')|join('+')"),
            q("map(attribute='role')|list"), q("map(attribute='n', default='?')|list"), q("select|list"), q("reject|list"),
            q("select('string')|list"), q("reject('none')|list"), q("select('in', [1, 'a'])|list"), q("selectattr('content')|list|length"),
            q("selectattr('role', 'equalto', 'user')|map(attribute='content')|list"), q("rejectattr('n', 'defined')|list|length"),
            q("batch(2)|list"), q("batch(2, 'f')|list"), q("tojson"), q("tojson(indent=2)"), q("sort(attribute='n')|map(attribute='v')|list"),
            q("string"), q("sort(case_sensitive=true)"), q("unique(attribute='role')|list|length"), q("sum(start=2)"),
            m("dictsort"), m("dictsort(true)"), m("dictsort(by='value')"), m("items|list"), m("length"), m("list"), m("tojson"),
            m("tojson(indent=4)"), m("tojson(sort_keys=true)"), m("tojson(separators=(',', ':'))"), m("string"), m("first"), m("join('|')"),
            m("dictsort(reverse=true)|first"), m("items|map('first')|list"), m("tojson(indent='--')"), m("attr('get')('b')"),
            n("abs"), n("round"), n("round(1)"), n("round(2, 'floor')"), n("round(0, 'ceil')"), n("int"), n("float"), n("string"), n("tojson"),
            n("default(1)"), n("round(-1)"), n("max"))

    def method(self, d):
        s = f"({self.string()})"
        q = f"({self.seq()})"
        m = f"({self.mapping()})"
        return self.pick(
            s + ".strip()", s + ".lstrip('a ')", s + ".rstrip()", s + ".split()", s + ".split(',')", s + ".split('a', 1)", s + ".rsplit('b', 1)",
            s + ".rsplit(None, 1)", s + ".split(' ', maxsplit=1)", s + ".splitlines()", s + ".splitlines(true)", s + ".upper()", s + ".lower()",
            s + ".title()", s + ".capitalize()", s + ".swapcase()", s + ".startswith('a')", s + ".endswith(('c', 'e'))", s + ".find('b')",
            s + ".rfind('b')", s + ".index('a')", s + ".count('a')", s + ".replace('a', 'b')", s + ".replace('b', '', 1)", s + ".join(['1', '2'])",
            s + ".isdigit()", s + ".isalpha()", s + ".isupper()", s + ".isspace()", s + ".islower()", s + ".isalnum()", s + ".zfill(5)",
            s + ".ljust(6, '.')", s + ".rjust(6)", s + ".center(7, '*')", s + ".partition('b')", s + ".rpartition(',')", s + ".removeprefix('a')",
            s + ".removesuffix('c')", s + ".format(1, x='y')", s + ".casefold()", s + ".startswith('b', 1)", s + ".isascii()", s + ".isnumeric()",
            s + ".find('a', 1, 4)", s + "[0]", s + "[-1]", s + "[1:]", s + "[:-1]", s + "[::-1]", s + "[1:5:2]", s + "[99]", s + "[5:2]", s + "[-3:]",
            q + "[0]", q + "[-1]", q + "[1:]", q + "[::2]", q + "[::-1]", q + "[:2]", q + ".index(1)", q + ".count(1)", q + "[9]", q + ".append(1)",
            q + ".copy()", m + ".get('a')", m + ".get('zz', 5)", m + ".items()|list", m + ".keys()|list", m + ".values()|list", m + "['a']", m + ".b",
            m + ".items", m + "['items']", m + ".nothing", m + ".pop('a')", m + ".update({})", m + ".copy()", m + ".x.y", m + ".keys()", m + ".items()")

    def sub(self, d):
        # no slices of scalars: Jinja2 folds constant ones to undefined, at run time they raise
        if self.r.random() < 0.4:
            box = self.pick(self.string(), "'a b c'.split()", "messages", "[1, 2, 3]", "range(5)")
            return f"({box})[{self.pick('1:', ':2', '::-1', '-2:', '1:-1', '::2', '3:0:-1')}]"
        return f"({self.value(d)})[{self.pick(self.num(), self.string(), '-1', '0')}]"

    def binary(self, d):
        op = self.pick("+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or", "~")
        if op in ("+", "~") and self.r.random() < 0.6:
            return f"({self.string()} {op} {self.string()})"
        if op == "**":
            return f"({self.pick('2', '3', '2.5', '-2', '0.5')} ** {self.pick('2', '0', '3')})"
        if op == "*" and self.r.random() < 0.7:
            return f"({self.num()} * {self.num()})"
        if op == "*":
            return f"({self.value(d)} * {self.pick('2', '0', '-1')})"
        return f"({self.value(d)} {op} {self.value(d)})"

    def test(self, d):
        t = self.pick("defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number", "integer", "float", "boolean", "true",
                      "false", "eq 1", "equalto 'abc'", "ne 1", "lt 3", "gt(1)", "ge 2", "in [1, 'abc']", "odd", "even", "divisibleby 2", "lower",
                      "upper", "callable", "sameas none", "sameas true", "== 2", "escaped", "filter", "test", "!= 'a'")
        return f"{self.value(d)} is {self.pick('', 'not ')}{t}"

    def statement(self):
        v = self.value
        return self.pick(
            f"{{% set x = {v()} %}}{{{{ x }}}}", f"{{% if {v()} %}}A{{% elif {v()} %}}B{{% else %}}C{{% endif %}}",
            f"{{% for x in {self.seq()} %}}{{{{ loop.index }}}}{{{{ x }}}}{{% if loop.last %}}!{{% endif %}}{{% else %}}none{{% endfor %}}",
            f"{{% for x in {self.seq()} if x %}}{{{{ loop.length }}}}:{{{{ x }}}},{{% endfor %}}",
            f"{{% for k, w in ({self.mapping()}).items() %}}{{{{ k }}}}={{{{ w }}}};{{% endfor %}}",
            f"{{% set ns = namespace(a=1, b={v()}) %}}{{% for x in {self.seq()} %}}{{% set ns.a = x %}}{{% endfor %}}{{{{ ns.a }}}}{{{{ ns.b }}}}",
            f"{{% set y = 0 %}}{{% for x in {self.seq()} %}}{{% set y = x %}}{{{{ y }}}}{{% endfor %}}{{{{ y }}}}",
            f"{{% macro m(a, b={v()}, c='z') %}}[{{{{ a }}}}|{{{{ b }}}}|{{{{ c }}}}|{{{{ varargs }}}}]{{% endmacro %}}{{{{ m({v()}) }}}}{{{{ m(1, c={v()}) }}}}",
            f"{{% macro m(a) %}}{{{{ a }}}}{{{{ kwargs }}}}{{% if caller %}}{{{{ caller(a) }}}}{{% endif %}}{{% endmacro %}}{{% call(u) m({v()}, z=1) %}}<{{{{ u }}}}>{{% endcall %}}",
            f"{{% macro r(n) %}}{{{{ n }}}}{{% if n > 0 %}}{{{{ r(n - 1) }}}}{{% endif %}}{{% endmacro %}}{{{{ r(3) }}}}{{{{ r }}}}",
            f"{{% set x %}}a{{{{ {v()} }}}}b{{% endset %}}{{{{ x|length }}}}{{{{ x }}}}", f"{{% set x | upper %}}a{{{{ {v()} }}}}{{% endset %}}{{{{ x }}}}",
            f"{{% filter upper %}}q{{{{ {v()} }}}}{{% endfilter %}}", f"{{% with a = {v()}, b = 2 %}}{{{{ a }}}}{{{{ b }}}}{{% endwith %}}{{{{ a }}}}",
            f"{{% for x in {self.seq()} %}}{{% if loop.index == 2 %}}{{% continue %}}{{% endif %}}{{% if loop.index == 4 %}}{{% break %}}{{% endif %}}{{{{ x }}}}{{% endfor %}}",
            f"  {{%- if true %}}\n  a {{{{- {v()} -}}}}  \n  {{% endif %}}\n  b", f"a\n   {{% if true +%}}\n x\n   {{%+ endif %}}\n{{# c #}}\nz\n",
            f"{{% raw %}}{{{{ x }}}}{{% if %}}\n{{% endraw %}}\n{{{{ {v()} }}}}", f"{{{{ {v()}, {v()} }}}}",
            f"{{% set a, b = {self.pick('(1, 2)', '[3, 4]', self.seq(), v())} %}}{{{{ a }}}}-{{{{ b }}}}",
            f"{{% for x in {self.seq()} %}}{{{{ loop.cycle('o', 'e') }}}}{{{{ loop.previtem }}}}{{{{ loop.nextitem is defined }}}}{{{{ loop.changed(x) }}}}{{{{ loop.revindex0 }}}}{{% endfor %}}",
            f"{{% for x in {v()} %}}{{{{ x }}}},{{% endfor %}}", f"{{% if {self.test(0)} %}}y{{% else %}}n{{% endif %}}",
            f"{{% for x in [1, [2, [3]]] recursive %}}{{% if x is iterable %}}({{{{ loop(x) }}}}){{% else %}}{{{{ x }}}}{{{{ loop.depth }}}}{{% endif %}}{{% endfor %}}",
            f"{{{{ raise_exception('no ' ~ {self.string()}) }}}}", f"{{% set j = joiner('; ') %}}{{{{ j() }}}}a{{{{ j() }}}}b",
            f"{{{{ strftime_now('%Y-%m-%d') }}}}{{{{ range({self.num()})|list|length }}}}", f"{{% set x = {v()} %}}{{% if x %}}{{% set x = 2 %}}{{% endif %}}{{{{ x }}}}")

    def template(self):
        if self.r.random() < 0.6:
            return "{{ " + self.value() + " }}"
        return self.statement()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--render", required=True)
    p.add_argument("-n", type=int, default=20000)
    p.add_argument("--seed", default="1")
    p.add_argument("--show", type=int, default=40)
    p.add_argument("--tmp", default="/tmp")
    args = p.parse_args()

    class FixedClock(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.datetime(2026, 1, 15, 12)

    ctu.datetime = FixedClock
    g = Gen(random.Random(args.seed))
    texts = [g.template() for _ in range(args.n)]
    for name, body in (("empty.jinja", ""), ("special.json", "{}")):
        with open(os.path.join(args.tmp, name), "w") as f:
            f.write(body)
    inp = "".join(json.dumps({"template": t, "messages": MESSAGES, "tools": TOOLS, "kwargs": {}}) + "\n" for t in texts)
    out = subprocess.run([args.render, os.path.join(args.tmp, "empty.jinja"), os.path.join(args.tmp, "special.json"), "1768478400"],
                         input=inp.encode(), capture_output=True)
    lines = out.stdout.decode().split("\n")
    bad = errors = 0
    for t, line in zip(texts, lines):
        ours = json.loads(line)
        try:
            want, why = ctu.render_jinja_template(conversations=[json.loads(json.dumps(MESSAGES))], tools=TOOLS, chat_template=t)[0][0], None
        except Exception as e:
            want, why = None, f"{type(e).__name__}: {e}"
        if want is not None and (" at 0x" in want.lower() or "<generator" in want.lower()):
            want, why = None, "prints an address"
        errors += want is None
        if (want is None) != ("error" in ours) or (want is not None and want != ours["text"]):
            bad += 1
            if bad <= args.show:
                print(f"{t}\n    ours {ours.get('text', ours.get('error'))!r}\n    want {why or want!r}")
    print(f"{len(texts)} templates, {errors} of them errors in Jinja2, {bad} different; ours answered {len(lines) - 1}")
    sys.exit(bad > 0 or len(lines) - 1 != len(texts))


if __name__ == "__main__":
    main()
