/* chat templates: every construct, filter, test and method, what is refused and how, limits. The expected texts are
 * those of Jinja2 3.1 in transformers' environment (tests/parity compares many more). */
#include "base/base.h"
#include "text/text.h"
#include "../testlib.h"

static struct sky_err err;

static const char messages[] =
	"[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":\"  na\\u00efve <b>  \",\"n\":3},"
	"{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c1\",\"function\":{\"name\":\"f\",\"arguments\":"
	"{\"b\":1,\"A\":[1,2.5,\"x\"],\"z\":null}}}]},{\"role\":\"tool\",\"content\":\"42\",\"x\":1e-5}]";
static const char args[] = "{\"flag\":true,\"num\":7,\"big\":123456789012345678901,\"obj\":{\"k\":{\"d\":[]}}}";

/* Renders into a static buffer; NULL on failure (err tells). */
static const char *render(const char *src)
{
	static char text[8192];
	struct sky_template *t = NULL;
	struct sky_renderer *r = NULL;
	const struct sky_render *out = NULL;
	struct sky_render_opt opt = { .args_json = args, .n_args_json = sizeof(args) - 1, .date = 1768478400 };
	int rc;

	memset(&err, 0, sizeof(err));
	rc = sky_template_parse(src, strlen(src), "t", &t, &err);
	rc = rc ? rc : sky_template_set_special(t, "bos_token", "<s>", &err);
	rc = rc ? rc : sky_renderer_new(t, &r, &err);
	rc = rc ? rc : sky_renderer_text(r, messages, sizeof(messages) - 1, &opt, &out, &err);
	if (rc == 0) {
		snprintf(text, sizeof(text), "%s", out->text.ptr);
	}
	sky_renderer_free(r);
	sky_template_close(t);
	return rc == 0 ? text : NULL;
}

struct pair { const char *src, *want; };

static void run(const char *what, const struct pair *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const char *got = render(p[i].src);

		if (!T_STR(got, p[i].want, "%s: %s", what, p[i].src) && !got) {
			t_note("%s", err.msg);
		}
	}
}

#define RUN(what, table) run(what, table, sizeof(table) / sizeof((table)[0]))

static const struct pair white_space[] = {
	{ "a\n", "a" }, { "a\n\n", "a\n" }, { "a\r\nb\r", "a\nb" }, { "", "" },
	{ "{% if true %}\nx\n{% endif %}\ny", "x\ny" },
	{ "  {% if true %}\n  x\n  {% endif %}\ny", "  x\ny" },
	{ "a {%- if true -%}  x  {%- endif -%} b", "axb" },
	{ "a\n  {%+ if true %}b{% endif %}", "a\n  b" },
	{ "{% if true +%}\nb{% endif %}", "\nb" },
	{ "{{ 1 }}\n{{ 2 }}", "1\n2" }, { "  {{- 1 -}}  \n 2", "12" },
	{ "a{# c #}\nb", "ab" }, { "a {#- c -#} b", "ab" }, { "x {# {{ no }} #} y", "x  y" },
	{ "{% raw %}{{ x }}{% endraw %}", "{{ x }}" }, { "a {%- raw -%} {% b %} {%- endraw -%} c", "a{% b %}c" },
	{ "a\xe3\x80\x80{%- if true %}b{% endif %}", "ab" },
};

static const struct pair literals[] = {
	{ "{{ 'a\\n\\t\\\\\\'\\x41\\u00e9\\U0001F600\\q' }}", "a\n\t\\'A\xc3\xa9\xf0\x9f\x98\x80\\q" },
	{ "{{ 'a' \"b\" 'c' }}", "abc" }, { "{{ 1_000 }} {{ 0x1f }} {{ 0b11 }} {{ 0o17 }}", "1000 31 3 15" },
	{ "{{ 1.5e3 }} {{ 1e-7 }} {{ 1e16 }} {{ 123456789.125 }} {{ 0.1 + 0.2 }}", "1500.0 1e-07 1e+16 123456789.125 0.30000000000000004" },
	{ "{{ [1, 'a', none, true, 2.0] }}", "[1, 'a', None, True, 2.0]" }, { "{{ (1,) }}{{ () }}{{ (1, 2) }}", "(1,)()(1, 2)" },
	{ "{{ {'a': 1, 'b': [\"it's\"]} }}", "{'a': 1, 'b': [\"it's\"]}" }, { "{{ 1, 2 }}", "(1, 2)" },
	{ "{{ True }} {{ false }} {{ None }} {{ big }} {{ -big|int }}", NULL }, { "{{ big }} {{ 2 ** 62 }}", "123456789012345678901 4611686018427387904" },
	{ "{{ 'a\nb' }}", "a\nb" }, { "{{ '\xc2\xa0' ~ ['\xc2\xa0'] }}", "\xc2\xa0['\\xa0']" },
	{ "{{ {'a': {'b': 1}}}}", "{'a': {'b': 1}}" }, { "{{ 5e-324 }} {{ 2.0 ** -44 }}", "5e-324 5.684341886080802e-14" },
};

static const struct pair operators[] = {
	{ "{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 3 }} {{ 7.5 % 2 }}", "3 -4 2 3.5 8 1.5" },
	{ "{{ 'a' + 'b' * 2 }} {{ [1] + [2] }} {{ 1 ~ 2 ~ none }}", "abb [1, 2] 12None" },
	{ "{{ 1 < 2 < 3 }} {{ 1 == 1.0 }} {{ 'a' != 'b' }} {{ 2 in [1, 2] }} {{ 'x' not in 'abc' }}", "True True True True True" },
	{ "{{ not 0 and 'y' or 'z' }} {{ '' or [] }} {{ 1 and 2 }}", "y [] 2" },
	{ "{{ 'a' if flag else 'b' }}{{ 'a' if not flag }}", "a" }, { "{{ -num + +num }}", "0" },
	{ "{{ 'k' in obj }} {{ obj == {'k': {'d': []}} }} {{ [1, 2] < [1, 3] }}", "True True True" },
	{ "{{ 10 - 2 - 3 }} {{ 2 + 3 * 4 }} {{ (2 + 3) * 4 }} {{ -2 ** 2 }}", "5 14 20 4" },
	{ "{{ '%s=%d %05.1f %r%%' % ('a', 3, 2.25, 'q') }}", "a=3 002.2 'q'%" }, { "{{ 'a' ~ undefined_thing ~ 'b' }}", "ab" },
	{ "{{ 'a<' + ('b<'|safe) }}", "a&lt;b<" }, { "{{ [1] * 2 }}{{ 'ab' * -1 }}", "[1, 1]" },
};

static const struct pair access_[] = {
	{ "{{ messages[0].role }} {{ messages[1]['n'] }} {{ messages[-1].content }}", "system 3 42" },
	{ "{{ messages[1:3]|length }} {{ messages[::-1][0].role }} {{ 'abcdef'[1:5:2] }} {{ 'abc'[::-1] }}", "2 tool bd cba" },
	{ "{{ 'na\xc3\xafve'[2] }} {{ 'na\xc3\xafve'[1:3] }} {{ 'abc'[-1] }} {{ [1, 2, 3][:-1] }}", "\xc3\xaf a\xc3\xaf c [1, 2]" },
	{ "[{{ messages[9] }}][{{ messages[0].nope }}][{{ nope }}]", "[][][]" }, { "{{ obj.k.d }} {{ obj['k']['d'] }}", "[] []" },
	{ "{{ messages[2].tool_calls[0].function.arguments.A[1] }}", "2.5" }, { "{{ messages.0.role }}", "system" },
	{ "{{ bos_token }}|{{ eos_token }}|{{ add_generation_prompt }}|{{ tools }}|{{ documents }}", "<s>||False|None|None" },
	{ "{{ messages[3].x }} {{ messages|map(attribute='role')|join(',') }}", "1e-05 system,user,assistant,tool" },
};

static const struct pair statements[] = {
	{ "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ m.role[0] }}{{ ',' if not loop.last }}{% endfor %}", "10s,21u,32a,43t" },
	{ "{% for i in range(3) %}{{ loop.first }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.length }} {% endfor %}",
	  "True323 False213 False103 " },
	{ "{% for m in messages %}{{ loop.previtem.role if loop.previtem }}>{{ loop.nextitem.role if loop.nextitem }};{% endfor %}",
	  ">user;system>assistant;user>tool;assistant>;" },
	{ "{% for x in [] %}a{% else %}none{% endfor %}{% for x in [1] %}a{% else %}b{% endfor %}", "nonea" },
	{ "{% for x in [1, 2, 3, 4] if x is even %}{{ loop.index }}:{{ x }} {% endfor %}", "1:2 2:4 " },
	{ "{% for k, v in obj.k.items() %}{{ k }}={{ v }}{% endfor %}{% for k in obj %}{{ k }}{% endfor %}", "d=[]k" },
	{ "{% for x in range(9) %}{% if x == 2 %}{% continue %}{% elif x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}", "013" },
	{ "{% set x = 0 %}{% for i in [1, 2] %}{% set x = i %}{{ x }}{% endfor %}{{ x }}", "120" },
	{ "{% set ns = namespace(x=0) %}{% for i in [1, 2] %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}", "3" },
	{ "{% if false %}a{% elif 0 %}b{% else %}c{% endif %}{% if flag %}{% set y = 5 %}{% endif %}{{ y }}", "c5" },
	{ "{% set a, b = 1, [2] %}{{ a }}{{ b }}{% set (c, d) = 'xy' %}{{ c }}{{ d }}", "1[2]xy" },
	{ "{% set t %}<{{ num }}>{% endset %}{{ t }}{{ t|length }}{% set u | upper %}ab{% endset %}{{ u }}", "<7>3AB" },
	{ "{% filter upper %}a{{ 'b' }}{% endfilter %}{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}", "AB3" },
	{ "{% macro m(a, b=2, c=a) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, c=3) }}{{ m(b=5, a=4) }}", "[121][123][454]" },
	{ "{% macro m(n) %}{{ n }}{% if n %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(3) }}{{ m(1)|length }}", "32102" },
	{ "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, k=3) }}", "(1, 2){'k': 3}" },
	{ "{% macro m() %}<{{ caller('x') }}>{% endmacro %}{% call(a) m() %}{{ a }}y{% endcall %}", "<xy>" },
	{ "{% for i in [1] %}{% macro m() %}{{ i }}{{ num }}{% endmacro %}{{ m() }}{% endfor %}", "17" },
	{ "{% for x in [1, [2, [3]]] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}{% endif %}{% endfor %}", "1(2(3))" },
	{ "{% for x in 'abab' %}{{ loop.cycle(0, 1) }}{{ loop.changed(x) }}{% endfor %}", "0True1True0True1True" },
	{ "{% set j = joiner('; ') %}{{ j() }}a{{ j() }}b{% set c = cycler(1, 2) %}{{ c.next() }}{{ c.next() }}{{ c.next() }}", "a; b121" },
	{ "{{ dict(a=1, b='x') }}{{ namespace(q=1).q }}{{ strftime_now('%d %b %Y') }}{{ range(2, 8, 3)|list }}", "{'a': 1, 'b': 'x'}115 Jan 2026[2, 5]" },
	{ "{% generation %}{% set q = 1 %}x{{ q }}{% endgeneration %}{{ q }}", "x1" },
	{ "{% for a in range(3) %}{% for b in range(3) %}{% if b > a %}{% break %}{% endif %}{{ b }}{% endfor %}|{% endfor %}", "0|01|012|" },
};

static const struct pair filters[] = {
	{ "{{ messages[1].content|trim }}|{{ 'xxaxx'|trim('x') }}|{{ 'a b'|title }}|{{ 'aB c'|capitalize }}|{{ 'aB'|lower }}{{ 'aB'|upper }}",
	  "na\xc3\xafve <b>|a|A B|Ab c|abAB" },
	{ "{{ 'abc'|length }}{{ [1]|count }}{{ 'na\xc3\xafve'|length }}", "315" },
	{ "{{ nope|default('d') }}{{ ''|default('d', true) }}{{ ''|d('x') }}{{ none|default(1) }}", "ddNone" },
	{ "{{ [1, 2]|join }} {{ [1, 2]|join(', ') }} {{ messages|join('/', attribute='role') }}", "12 1, 2 system/user/assistant/tool" },
	{ "{{ 'aXbX'|replace('X', '-') }} {{ 'aaa'|replace('a', 'b', 2) }} {{ 'ab'|replace('', '.') }}", "a-b- bba .a.b." },
	{ "{{ [3, 1, 2]|sort }} {{ ['b', 'A']|sort }} {{ [1, 2]|sort(reverse=true) }} {{ {'b': 1, 'A': 2}|dictsort }}",
	  "[1, 2, 3] ['A', 'b'] [2, 1] [('A', 2), ('b', 1)]" },
	{ "{{ [1, 2]|first }}{{ [1, 2]|last }}{{ 'abc'|first }}{{ [1, 2]|reverse|list }}{{ 'abc'|reverse }}{{ []|first is defined }}",
	  "12a[2, 1]cbaFalse" },
	{ "{{ ['a', 'b']|map('upper')|list }} {{ [1, 0, 2]|select|list }} {{ [1, 'a']|reject('string')|list }}", "['A', 'B'] [1, 2] [1]" },
	{ "{{ messages|selectattr('role', 'equalto', 'user')|list|length }}{{ messages|rejectattr('tool_calls')|list|length }}"
	  "{{ messages|selectattr('content', 'none')|map(attribute='role')|first }}", "13assistant" },
	{ "{{ obj|items|list }} {{ nope|items|list }} {{ 'ab'|list }} {{ [1, 1, 2]|unique|list }}", "[('k', {'d': []})] [] ['a', 'b'] [1, 2]" },
	{ "{{ '5'|int + 1 }} {{ 'x'|int(9) }} {{ '2.7'|int }} {{ '1.5'|float }} {{ 3|string + '!' }} {{ '0x1f'|int(base=16) }}", "6 9 2 1.5 3! 31" },
	{ "{{ -3|abs }} {{ 2.567|round(2) }} {{ 2.5|round }} {{ 2.1|round(0, 'ceil') }} {{ [1, 2]|sum }} {{ [1, 3]|max }}{{ [2, 1]|min }}",
	  "3 2.57 2.0 3.0 3 31" },
	{ "{{ [1, 2, 3]|batch(2)|list }} {{ [1, 2, 3]|batch(2, 0)|list }}", "[[1, 2], [3]] [[1, 2], [3, 0]]" },
	{ "{{ 'a\nb\n\nc'|indent(2) }}|{{ 'a\nb'|indent(1, true) }}", "a\n  b\n\n  c| a\n b" },
	{ "{{ '<a&\"'|e }} {{ '<'|safe }} {{ 'hello world'|truncate(8, true, '...', 0) }} {{ 'a b-c'|wordcount }} {{ 'ab'|center(6) }}|",
	  "&lt;a&amp;&#34; < hello... 3   ab  |" },
	{ "{{ '%s-%s'|format(1, 'x') }}", "1-x" },
	{ "{{ messages[2].tool_calls[0].function.arguments|tojson }}", "{\"b\": 1, \"A\": [1, 2.5, \"x\"], \"z\": null}" },
	{ "{{ {'b': [1], 'a': {}}|tojson(indent=2) }}", "{\n  \"b\": [\n    1\n  ],\n  \"a\": {}\n}" },
	{ "{{ {'b': 1, 'a': '<\xc3\xa9\xf0\x9f\x98\x80\\n\x7f'}|tojson(ensure_ascii=true, sort_keys=true, separators=(',', ':')) }}",
	  "{\"a\":\"<\\u00e9\\ud83d\\ude00\\n\\u007f\",\"b\":1}" },
	{ "{{ '\\x01\\b\\f/'|tojson }} {{ [true, none, 1.0, 1e30]|tojson }} {{ {1: 2, none: 3}|tojson }}",
	  "\"\\u0001\\b\\f/\" [true, null, 1.0, 1e+30] {\"1\": 2, \"null\": 3}" },
};

static const struct pair tests_[] = {
	{ "{{ nope is defined }}{{ flag is defined }}{{ nope is undefined }}{{ none is none }}{{ 1 is not none }}", "FalseTrueTrueTrueTrue" },
	{ "{{ '' is string }}{{ {} is mapping }}{{ [] is mapping }}{{ [] is iterable }}{{ 1 is iterable }}{{ {} is sequence }}", "TrueTrueFalseTrueFalseTrue" },
	{ "{{ 1 is number }}{{ true is number }}{{ true is integer }}{{ 1.0 is float }}{{ true is boolean }}{{ 1 is boolean }}", "TrueTrueFalseTrueTrueFalse" },
	{ "{{ true is true }}{{ 1 is true }}{{ false is false }}{{ 3 is odd }}{{ 4 is even }}{{ 9 is divisibleby 3 }}", "TrueFalseTrueTrueTrueTrue" },
	{ "{{ 1 is eq 1 }}{{ 1 is equalto(1) }}{{ 1 is ne 2 }}{{ 1 is lt 2 }}{{ 3 is gt 2 }}{{ 2 is ge 2 }}{{ 1 is in [1] }}", "TrueTrueTrueTrueTrueTrueTrue" },
	{ "{{ none is sameas none }}{{ 'ab' is lower }}{{ 'AB' is upper }}{{ range is callable }}{{ 'trim' is filter }}{{ 'odd' is test }}", "TrueTrueTrueTrueTrueTrue" },
};

static const struct pair methods[] = {
	{ "{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }}",
	  "['a', 'b', '', 'c'] ['a', 'b'] ['a', 'b,c'] ['a,b', 'c']" },
	{ "[{{ ' x '.strip() }}][{{ ' x '.lstrip() }}][{{ 'xxa'.lstrip('x') }}][{{ 'a\\n\\n'.rstrip('\\n') }}]", "[x][x ][a][a]" },
	{ "{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x', 'c')) }}{{ 'abcb'.find('b') }}{{ 'abcb'.rfind('b') }}{{ 'abcb'.count('b') }}{{ 'abc'.find('z') }}",
	  "TrueTrue132-1" },
	{ "{{ 'aXb'.replace('X', '') }}{{ 'Ab'.lower() }}{{ 'ab c'.title() }}{{ 'ab'.upper() }}{{ 'aB'.swapcase() }}{{ 'stra\xc3\x9f""e'.upper() }}",
	  "ababAb CABAbSTRASSE" },
	{ "{{ ', '.join(['a', 'b']) }} {{ 'a-b'.partition('-') }} {{ 'ab'.removeprefix('a') }}{{ 'ab'.removesuffix('b') }} {{ '7'.zfill(3) }}",
	  "a, b ('a', '-', 'b') ba 007" },
	{ "{{ '12'.isdigit() }}{{ 'a1'.isalpha() }}{{ ' '.isspace() }}{{ 'a\\nb\\r\\nc'.splitlines() }}", "TrueFalseTrue['a', 'b', 'c']" },
	{ "{{ '{}-{x:>4}-{0!r}{{}}'.format('a', x=5) }}", NULL }, { "{{ '{0}-{x:>4}-{0!r}'.format('a', x=5) }}", "a-   5-'a'" },
	{ "{{ obj.get('k') }}{{ obj.get('z') }}{{ obj.get('z', 1) }}{{ obj.keys()|list }}{{ obj.values()|list }}{{ obj.items()|list }}",
	  "{'d': []}None1['k'][{'d': []}][('k', {'d': []})]" },
	{ "{{ [1, 2, 1].count(1) }}{{ [1, 2].index(2) }}{{ {'items': 5}['items'] }}", "215" },
};

/* ---- what is refused ---- */
static const struct { const char *src, *says; int code; } bad[] = {
	{ "{% if %}", "line 1", SKY_E_DATA }, { "{% if true %}", "endif", SKY_E_DATA }, { "{{ 1 ", "unexpected end", SKY_E_DATA },
	{ "a\n\n{% nope %}", "line 3: Encountered unknown tag 'nope'", SKY_E_DATA }, { "{{ 'a }}", "not closed", SKY_E_DATA },
	{ "{{ x|nope }}", "No filter named 'nope'", SKY_E_DATA }, { "{{ x is nope }}", "No test named 'nope'", SKY_E_DATA },
	{ "{% if true %}{{ 1|nope }}{% endif %}", "No filter named 'nope'", SKY_E_DATA }, { "{# a", "comment", SKY_E_DATA },
	{ "{% raw %}x", "raw", SKY_E_DATA }, { "{{ a ! b }}", "unexpected char", SKY_E_DATA }, { "{{ (1] }}", "bracket", SKY_E_DATA },
	{ "{% break %}", "outside of a loop", SKY_E_DATA }, { "{% include 'x' %}", "not supported", SKY_E_DATA },
	{ "{{ f(a=1, 2) }}", "positional", SKY_E_DATA }, { "{{ '\\x1' }}", "escape", SKY_E_DATA }, { "{% for x y %}", "'in'", SKY_E_DATA },
	{ "\n{{ raise_exception('no way: ' + messages[0].role) }}", "t: line 2: no way: system", SKY_E_DATA },
	{ "{{ nope.x }}", "'nope' is undefined", SKY_E_DATA }, { "{{ messages[0].nope.x }}", "'dict object' has no attribute 'nope'", SKY_E_DATA },
	{ "{{ 'a' + 1 }}", "can only concatenate str (not \"int\") to str", SKY_E_DATA }, { "{{ nope + 'a' }}", "'nope' is undefined", SKY_E_DATA },
	{ "{{ 1 < 'a' }}", "not supported between", SKY_E_DATA }, { "{{ 1 / 0 }}", "division by zero", SKY_E_DATA }, { "{{ 1|length }}", "len()", SKY_E_DATA },
	{ "{% for x in none %}{% endfor %}", "'NoneType' object is not iterable", SKY_E_DATA }, { "{{ nope() }}", "'nope' is undefined", SKY_E_DATA },
	{ "{{ [1].append(2) }}", "unsafe", SKY_E_DATA }, { "{{ {}.update({}) }}", "unsafe", SKY_E_DATA }, { "{{ nope|tojson }}", "not JSON serializable", SKY_E_DATA },
	{ "{% set a, b = [1] %}", "not enough values to unpack", SKY_E_DATA }, { "{% set a.b = 1 %}", "non-namespace", SKY_E_DATA },
	{ "{% set ns = namespace() %}{% set ns._x = 1 %}", "underscore", SKY_E_DATA }, { "{{ range(1000000) }}", "Range too big", SKY_E_DATA },
	{ "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "not more than 1", SKY_E_DATA }, { "{% macro m() %}{% endmacro %}{{ m(z=1) }}", "keyword argument 'z'", SKY_E_DATA },
	{ "{{ 1() }}", "not callable", SKY_E_DATA }, { "{{ [1]|join('a').x }}", "end of print statement", SKY_E_DATA }, { "{{ {[]: 1} }}", "unhashable", SKY_E_DATA },
	{ "{{ range }}", "is printed", SKY_E_DATA }, { "{{ 5 in 5 }}", "not iterable", SKY_E_DATA },
	/* limits */
	{ "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "deep", SKY_E_LIMIT },
	{ "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "steps", SKY_E_LIMIT },
	{ "{{ 'x' * 1000000000 }}", "longer than 32 MiB", SKY_E_LIMIT }, { "{{ 2 ** 64 }}", "64 bits", SKY_E_LIMIT },
	{ "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", "", SKY_E_LIMIT },
	{ "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}", "", SKY_E_LIMIT },
	{ "{% set ns = namespace(l=[1]) %}{% for i in range(20000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}", "nested too deeply", SKY_E_LIMIT },
};

static void test_refused(void)
{
	char *deep = malloc(200001);

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const char *got = render(bad[i].src);

		T_OK(!got, "refused: %s", bad[i].src);
		T_I64(err.code, bad[i].code, "code of %s", bad[i].src);
		T_HAS(err.msg, bad[i].says, "message of %s", bad[i].src);
	}
	memset(deep, '(', 100000);
	memset(deep + 100000, ')', 100000);
	deep[0] = deep[1] = '{';
	deep[200000] = 0;
	T_OK(!render(deep), "100000 brackets are refused, not a crash: %s", err.msg);
	for (int i = 0; i < 3000; i++) {
		memcpy(deep + i * 15, "{% if true %}ab", 15);
	}
	deep[3000 * 15] = 0;
	T_OK(!render(deep), "3000 nested blocks are refused: %s", err.msg);
	free(deep);
}

static void test_input(void)
{
	static const struct { const char *messages, *says; } rows[] = {
		{ "[", "messages: byte" }, { "{}", "array" }, { "[1]", "message 0 is not an object" }, { "[{}] x", "behind the value" },
		{ "[{\"a\":01}]", "byte" }, { "[{\"a\":\"\\ud800\"}]", "surrogate" }, { "[{\"a\" 1}]", "':'" }, { "[{\"a\":\"x\ny\"}]", "control" },
		{ "", "ends" }, { "[{\"a\":nul}]", "value" }, { "[{1:2}]", "quotes" }, { "[{\"a\":\"\\q\"}]", "escape" }, { "[{\"a\":1.}]", "number" },
	};
	struct sky_template *t = NULL;
	struct sky_renderer *r = NULL;
	const struct sky_render *out = NULL;
	struct sky_render_opt opt = { .date = -1 };
	static const char good[] = "[{\"role\":\"user\",\"content\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude00\",\"content\":\"last \\u0000 wins\"}]";

	T_RC(sky_template_parse("{{ messages[0].content }}", 25, "t", &t, &err), 0, &err, "parse");
	T_RC(sky_renderer_new(t, &r, &err), 0, &err, "renderer");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int rc = sky_renderer_text(r, rows[i].messages, strlen(rows[i].messages), &opt, &out, &err);

		T_RC(rc, SKY_E_DATA, &err, "messages %s", rows[i].messages);
		T_HAS(err.msg, rows[i].says, "message of %s", rows[i].messages);
	}
	T_RC(sky_renderer_text(r, good, sizeof(good) - 1, &opt, &out, &err), 0, &err, "escapes in messages");
	T_OK(out->text.n == 11 && !memcmp(out->text.ptr, "last \0 wins", 11), "the last of two equal keys wins, NUL is kept");
	opt.tools_json = "{}";
	opt.n_tools_json = 2;
	T_RC(sky_renderer_text(r, "[]", 2, &opt, &out, &err), SKY_E_DATA, &err, "tools that are no array");
	opt.tools_json = NULL;
	opt.args_json = "[]";
	opt.n_args_json = 2;
	T_RC(sky_renderer_text(r, "[]", 2, &opt, &out, &err), SKY_E_DATA, &err, "arguments that are no object");
	sky_renderer_free(r);
	sky_template_close(t);
}

/* transformers 5 gives reasoning two names. */
static void test_reasoning_aliases(void)
{
	static const char src[] = "{{ messages[0]|tojson }}{{ messages[1].reasoning_content }}", chat[] =
		"[{\"role\":\"assistant\",\"reasoning\":\"r\"},{\"role\":\"assistant\",\"thinking\":\"t\",\"reasoning_content\":null}]";
	struct sky_template *t = NULL;
	struct sky_renderer *r = NULL;
	const struct sky_render *out = NULL;
	struct sky_render_opt opt = { .date = -1 };
	int rc = sky_template_parse(src, sizeof(src) - 1, "t", &t, &err);

	rc = rc ? rc : sky_renderer_new(t, &r, &err);
	rc = rc ? rc : sky_renderer_text(r, chat, sizeof(chat) - 1, &opt, &out, &err);
	if (T_RC(rc, 0, &err, "render")) {
		T_STR(out->text.ptr, "{\"thinking\": \"r\", \"role\": \"assistant\", \"reasoning\": \"r\", \"reasoning_content\": \"r\"}t",
		      "reasoning is found under all its names");
	}
	sky_renderer_free(r);
	sky_template_close(t);
}

/* ---- directories ---- */
static void put(const char *dir, const char *name, const char *text)
{
	char path[T_PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	unlink(path);
	T_RC(sky_file_publish(path, text, strlen(text), 0, &err), 0, &err, "write %s", name);
}

static void opens(const char *dir, const char *tools, const char *want, const char *what)
{
	struct sky_template *t = NULL;
	struct sky_renderer *r = NULL;
	const struct sky_render *out = NULL;
	struct sky_render_opt opt = { .date = -1, .tools_json = tools, .n_tools_json = tools ? strlen(tools) : 0 };
	int rc = sky_template_open(dir, &t, &err);

	rc = rc ? rc : sky_renderer_new(t, &r, &err);
	rc = rc ? rc : sky_renderer_text(r, "[]", 2, &opt, &out, &err);
	T_STR(rc == 0 ? out->text.ptr : err.msg, want, "%s", what);
	sky_renderer_free(r);
	sky_template_close(t);
}

static void test_directories(void)
{
	const char *dir = t_path("model");
	struct sky_template *t = NULL;
	char fp[65], fp2[65];

	T_OK(mkdir(dir, 0777) == 0, "model directory");
	T_RC(sky_template_open(dir, &t, &err), SKY_E_MISSING, &err, "a directory without a template");
	T_HAS(err.msg, "--chat-template", "the message says what to do");
	put(dir, "tokenizer_config.json", "{\"bos_token\":\"<s>\",\"eos_token\":{\"content\":\"</s>\"},\"pad_token\":null,\"chat_template\":"
	    "\"{{ bos_token }}-{{ eos_token }}-{{ pad_token }}\"}");
	opens(dir, NULL, "<s>-</s>-", "a template in tokenizer_config.json, special tokens as text and object");
	T_RC(sky_template_open(dir, &t, &err), 0, &err, "open");
	T_STR(sky_template_special(t, "eos_token"), "</s>", "eos_token of the directory");
	T_OK(!sky_template_special(t, "pad_token") && !sky_template_special(t, "nope"), "absent special tokens");
	sky_template_fingerprint(t, fp);
	T_I64(strlen(fp), 64, "fingerprint");
	sky_template_close(t);
	put(dir, "tokenizer_config.json", "{\"chat_template\":[{\"name\":\"default\",\"template\":\"D\"},{\"name\":\"tool_use\",\"template\":\"T\"},"
	    "{\"name\":\"rag\",\"template\":\"{% bad\"}]}");
	opens(dir, NULL, "D", "named templates: default");
	opens(dir, "[{}]", "T", "named templates: tool_use when there are tools");
	put(dir, "tokenizer_config.json", "{\"chat_template\":[{\"name\":\"rag\",\"template\":\"R\"}]}");
	T_RC(sky_template_open(dir, &t, &err), SKY_E_DATA, &err, "named templates without a default");
	put(dir, "tokenizer_config.json", "{\"chat_template\":[{\"name\":\"rag\"}]}");
	T_RC(sky_template_open(dir, &t, &err), SKY_E_DATA, &err, "a named template without its text");
	put(dir, "chat_template.jinja", "J{{ eos_token }}\n");
	put(dir, "tokenizer_config.json", "{\"eos_token\":\"E\",\"chat_template\":\"C\"}");
	opens(dir, NULL, "JE", "chat_template.jinja wins");
	T_RC(sky_template_open(dir, &t, &err), 0, &err, "open");
	sky_template_fingerprint(t, fp2);
	T_OK(strcmp(fp, fp2) != 0, "another template has another fingerprint");
	sky_template_close(t);
	put(dir, "tokenizer_config.json", "{");
	T_RC(sky_template_open(dir, &t, &err), SKY_E_DATA, &err, "a damaged tokenizer_config.json");
}

/* The owned result, and a renderer that is warm. */
static void test_ownership(void)
{
	struct sky_template *t = NULL;
	struct sky_json *doc = NULL;
	struct sky_render out;
	struct sky_render_opt opt = { .date = -1, .add_generation_prompt = 1 };
	static const char src[] = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<a>{% endif %}";
	static const char chat[] = "[{\"role\":\"user\",\"content\":\"hi\"}]";
	int rc = sky_template_parse(src, sizeof(src) - 1, "t", &t, &err);

	rc = rc ? rc : sky_json_parse(chat, sizeof(chat) - 1, "chat", 0, &doc, &err);
	rc = rc ? rc : sky_template_render(t, sky_json_root(doc), &opt, &out, &err);
	sky_template_close(t);
	sky_json_free(doc);
	if (T_RC(rc, 0, &err, "render")) {
		static const struct sky_span want[] = { { 0, 1, 0, SKY_PART_TEMPLATE }, { 1, 5, 0, SKY_PART_ROLE },
			{ 5, 6, 0, SKY_PART_TEMPLATE }, { 6, 8, 0, SKY_PART_CONTENT }, { 8, 11, -1, SKY_PART_TEMPLATE } };

		T_STR(out.text.ptr, "<user>hi<a>", "text outlives template and messages");
		T_I64(out.n_span, 5, "number of spans");
		for (int i = 0; i < 5 && i < out.n_span; i++) {
			T_OK(out.span[i].from == want[i].from && out.span[i].to == want[i].to && out.span[i].message == want[i].message &&
			     out.span[i].part == want[i].part, "span %d", i);
		}
		T_STR(out.message[0].role, "user", "role of the message");
		sky_render_release(&out);
	}
}

int main(void)
{
	RUN("white space", white_space);
	RUN("literal", literals);
	RUN("operator", operators);
	RUN("access", access_);
	RUN("statement", statements);
	RUN("filter", filters);
	RUN("test", tests_);
	RUN("method", methods);
	test_refused();
	test_input();
	test_reasoning_aliases();
	test_directories();
	test_ownership();
	return t_done();
}
