/* Reading JSON documents: navigation, exact numbers, getters that name the key. */
#include "base/json_int.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>

enum sky_jtype sky_j_type(const struct sky_jnode *v)
{
	return v ? (enum sky_jtype)v->type : SKY_J_NULL;
}

static bool is_container(const struct sky_jnode *v)
{
	return v && (v->type == SKY_J_OBJECT || v->type == SKY_J_ARRAY);
}

const struct sky_jnode *sky_j_get(const struct sky_jnode *v, const char *key)
{
	const struct sky_jnode *kids, *k;
	const uint32_t *table;
	uint32_t i, at, cap, hash;

	if (!v || v->type != SKY_J_OBJECT || v->n == 0) {
		return NULL;
	}
	kids = v->u.child;
	hash = sky_j_hash(key, strlen(key));
	if (v->n < SKY_J_TABLE_FROM) {
		for (i = 0; i < v->n; i++) {
			if (kids[i].hash == hash && strcmp(kids[i].key, key) == 0) {
				return &kids[i];
			}
		}
		return NULL;
	}
	cap = sky_j_table_cap(v->n);
	table = (const uint32_t *)(const void *)kids - cap;
	for (at = hash & (cap - 1); table[at] != 0; at = (at + 1) & (cap - 1)) {
		k = &kids[table[at] - 1];
		if (k->hash == hash && strcmp(k->key, key) == 0) {
			return k;
		}
	}
	return NULL;
}

const struct sky_jnode *sky_j_at(const struct sky_jnode *v, size_t i)
{
	return v && v->type == SKY_J_ARRAY && i < v->n ? &v->u.child[i] : NULL;
}

size_t sky_j_len(const struct sky_jnode *v)
{
	return is_container(v) ? v->n : 0;
}

const struct sky_jnode *sky_j_first(const struct sky_jnode *v)
{
	return is_container(v) && v->n > 0 ? v->u.child : NULL;
}

const struct sky_jnode *sky_j_next(const struct sky_jnode *v)
{
	return v && !v->last ? v + 1 : NULL;
}

const char *sky_j_key(const struct sky_jnode *v)
{
	return v ? v->key : NULL;
}

const char *sky_j_str(const struct sky_jnode *v)
{
	return v && v->type == SKY_J_STRING ? v->u.text : NULL;
}

const char *sky_j_strn(const struct sky_jnode *v, size_t *n_p)
{
	if (!v || v->type != SKY_J_STRING) {
		return NULL;
	}
	*n_p = v->n;
	return v->u.text;
}

const char *sky_j_raw(const struct sky_jnode *v)
{
	return v && v->type == SKY_J_NUMBER ? v->u.text : NULL;
}

/* Digits × 10^exponent without going through a double. False: not integral, or above 2^64 - 1. */
static bool exact_u64(const char *s, uint64_t *out)
{
	const char *p, *end = s + strcspn(s, "eE");
	uint64_t v = 0;
	long long exp10 = 0, n_frac = 0, n_zero = 0;
	bool frac = false;

	if (*s < '0' || *s > '9') {
		/* NaN, Infinity */
		return false;
	}
	if (*end) {
		errno = 0;
		exp10 = strtoll(end + 1, NULL, 10);
	}
	/* Zeros wait in n_zero until a digit follows: trailing ones must not make 1.000 overflow or look fractional. */
	for (p = s; p < end; p++) {
		if (*p == '.') {
			frac = true;
			continue;
		}
		n_frac += frac;
		if (*p == '0') {
			n_zero += v > 0;
			continue;
		}
		for (; n_zero > 0; n_zero--) {
			if (__builtin_mul_overflow(v, 10u, &v)) {
				return false;
			}
		}
		if (__builtin_mul_overflow(v, 10u, &v) || __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v)) {
			return false;
		}
	}
	if (v == 0) {
		*out = 0;
		return true;
	}
	if (exp10 > 1000000 || exp10 < -1000000000) {
		return false;
	}
	exp10 += n_zero - n_frac;
	for (; exp10 > 0; exp10--) {
		if (__builtin_mul_overflow(v, 10u, &v)) {
			return false;
		}
	}
	for (; exp10 < 0 && v % 10 == 0; exp10++) {
		v /= 10;
	}
	*out = v;
	return exp10 == 0;
}

bool sky_j_u64(const struct sky_jnode *v, uint64_t *out)
{
	const char *s = sky_j_raw(v);
	uint64_t u;

	if (!s || !exact_u64(s + (*s == '-'), &u) || (*s == '-' && u != 0)) {
		return false;
	}
	*out = u;
	return true;
}

bool sky_j_i64(const struct sky_jnode *v, int64_t *out)
{
	const char *s = sky_j_raw(v);
	uint64_t u;

	if (!s || !exact_u64(s + (*s == '-'), &u) || u > (uint64_t)INT64_MAX + (*s == '-')) {
		return false;
	}
	*out = (int64_t)(*s == '-' ? 0 - u : u);
	return true;
}

bool sky_j_f64(const struct sky_jnode *v, double *out)
{
	const char *s = sky_j_raw(v);
	double d;

	if (!s) {
		return false;
	}
	d = strtod(s, NULL);
	/* 1e400 overflows; a written Infinity (flag SKY_JSON_PYTHON) is what it says. */
	if (isinf(d) && s[*s == '-'] != 'I') {
		return false;
	}
	*out = d;
	return true;
}

bool sky_j_bool(const struct sky_jnode *v, bool *out)
{
	if (!v || v->type != SKY_J_BOOL) {
		return false;
	}
	*out = v->u.truth;
	return true;
}

static int wrong(struct sky_err *err, const struct sky_jnode *v, const char *key, const char *want)
{
	static const char *const names[] = { "null", "a boolean", "a number", "a string", "an array", "an object" };

	if (v->type == SKY_J_NUMBER) {
		return sky_fail(err, SKY_E_DATA, "\"%s\" must be %s, not %.40s", key, want, v->u.text);
	}
	return sky_fail(err, SKY_E_DATA, "\"%s\" must be %s, not %s", key, want, names[v->type]);
}

/* The member, or NULL when it is absent or null. */
static const struct sky_jnode *present(const struct sky_jnode *v, const char *key)
{
	const struct sky_jnode *m = sky_j_get(v, key);

	return m && m->type != SKY_J_NULL ? m : NULL;
}

int sky_j_get_i64(const struct sky_jnode *v, const char *key, int64_t def, int64_t *out, struct sky_err *err)
{
	const struct sky_jnode *m = present(v, key);
	int64_t got = def;

	if (m && !sky_j_i64(m, &got)) {
		return wrong(err, m, key, "a 64-bit integer");
	}
	*out = got;
	return 0;
}

int sky_j_get_f64(const struct sky_jnode *v, const char *key, double def, double *out, struct sky_err *err)
{
	const struct sky_jnode *m = present(v, key);
	double got = def;

	if (m && !sky_j_f64(m, &got)) {
		return wrong(err, m, key, "a number");
	}
	*out = got;
	return 0;
}

int sky_j_get_bool(const struct sky_jnode *v, const char *key, bool def, bool *out, struct sky_err *err)
{
	const struct sky_jnode *m = present(v, key);
	bool got = def;

	if (m && !sky_j_bool(m, &got)) {
		return wrong(err, m, key, "true or false");
	}
	*out = got;
	return 0;
}

int sky_j_get_str(const struct sky_jnode *v, const char *key, const char *def, const char **out, struct sky_err *err)
{
	const struct sky_jnode *m = present(v, key);

	if (m && m->type != SKY_J_STRING) {
		return wrong(err, m, key, "a string");
	}
	*out = m ? m->u.text : def;
	return 0;
}

static void print_node(struct sky_jw *w, const struct sky_jnode *v)
{
	const struct sky_jnode *k;

	switch (sky_j_type(v)) {
	case SKY_J_NULL:
		sky_jw_null(w);
		return;
	case SKY_J_BOOL:
		sky_jw_bool(w, v->u.truth);
		return;
	case SKY_J_NUMBER:
		sky_jw_raw(w, v->u.text, v->n);
		return;
	case SKY_J_STRING:
		sky_jw_strn(w, v->u.text, v->n);
		return;
	case SKY_J_ARRAY:
		sky_jw_arr(w);
		for (k = sky_j_first(v); k; k = sky_j_next(k)) {
			print_node(w, k);
		}
		sky_jw_close_arr(w);
		return;
	case SKY_J_OBJECT:
		sky_jw_obj(w);
		for (k = sky_j_first(v); k; k = sky_j_next(k)) {
			sky_jw_key(w, k->key);
			print_node(w, k);
		}
		sky_jw_close_obj(w);
		return;
	}
}

int sky_j_print(const struct sky_jnode *v, struct sky_buf *out, struct sky_err *err)
{
	struct sky_jw w;

	sky_jw_init(&w, out, err);
	print_node(&w, v);
	return sky_jw_end(&w);
}

void sky_jw_node(struct sky_jw *w, const struct sky_jnode *v)
{
	print_node(w, v);
}
