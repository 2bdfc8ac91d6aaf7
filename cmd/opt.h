/* Options: one table per program, from which parsing, --help, environment, configuration file, --print-config,
 * completions and the test of the manual are made.
 *
 *	static struct { int64_t rows; const char *tok; bool pack; int dtype; struct opt_list map; } o;
 *
 *	static const struct opt_row rows[] = {
 *		OPT_HEAD("Input"),
 *		OPT_FILE('t', "tokenizer", &o.tok, "FILE", NULL, "tokenizer.json or a model directory", .flags = OPT_REQUIRED),
 *		OPT_COUNT(0, "rows", &o.rows, "N", "1000", "rows a shard", .min = 1),
 *		OPT_CHOICE(0, "dtype", &o.dtype, "auto|u16|u32", "auto", "width of a token"),
 *		OPT_FLAG(0, "pack", &o.pack, NULL, "pack rows (--no-pack switches it off)"),
 *		OPT_TEXTS(0, "map", &o.map, "FROM=TO", "rename a field; may be repeated"),
 *		OPT_TABLE(cmd_dev_rows),
 *		CMD_OPT_OUTPUT, CMD_OPT_FORCE, CMD_OPT_JSON, CMD_OPT_THREADS,
 *		OPT_END
 *	};
 *
 * Arguments: letter (0: none), name without dashes, address of a variable (its type is checked when compiling), name
 * of the value, default as text (NULL: none, the variable keeps what it was initialised with), help with its unit;
 * then designators. The default is shown by --help and goes through the same parser as a value.
 *
 * Grammar (GNU): --long=value, --long value, -j4, -j 4, -vq; -- ends options; operands and options mix; a boolean --x
 * has --no-x; long names are never abbreviated. Values come, strongest first, from: option, SKYRL_<OPTION> in the
 * environment (dashes as _), --config FILE or SKYRL_CONFIG, ${XDG_CONFIG_HOME:-~/.config}/skyrl/config,
 * SYSCONFDIR/skyrl/config, default. A list given at one level replaces that of a weaker level. */
#ifndef SKY_CMD_OPT_H
#define SKY_CMD_OPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

enum opt_type {
	OPT_T_END, OPT_T_HEAD, OPT_T_TABLE,
	OPT_T_FLAG,             /* bool */
	OPT_T_UP,               /* int, one more for each mention (-vv) */
	OPT_T_INT,              /* int64_t, plain decimal, may be negative */
	OPT_T_COUNT,            /* int64_t ≥ 0: 1000, 1k, 2.5M */
	OPT_T_SIZE,             /* uint64_t bytes: 64M, 64MiB, 64MB */
	OPT_T_TIME,             /* double seconds: 90, 250ms, 15m */
	OPT_T_REAL,             /* double */
	OPT_T_TEXT,             /* const char *: lives as long as the program */
	OPT_T_FILE, OPT_T_DIR,  /* as text; completion offers files, folders */
	OPT_T_CHOICE,           /* int: index in arg "a|b|c" */
	OPT_T_TEXTS,            /* struct opt_list */
	OPT_T_CALL,             /* fn(value, p, err) */
};

enum opt_flags {
	OPT_HIDDEN = 1u << 0,   /* not in --help, manual, completion */
	OPT_NO_ENV = 1u << 1,   /* command line (and file) only */
	OPT_NO_CONF = 1u << 2,  /* not in configuration files */
	OPT_REQUIRED = 1u << 3, /* missing: usage error */
	OPT_SECRET = 1u << 4,   /* shown as *** */
	OPT_COMMON = 1u << 5,   /* of every program; set by the front */
};

struct opt_list {
	const char **v;         /* n strings, owned by the front */
	int64_t n;
};

struct opt_row {
	enum opt_type type;
	char letter;
	const char *name;       /* without dashes; title of a HEAD */
	void *p;
	const char *arg;        /* name of the value, or the choices; NULL: takes none */
	const char *def;        /* default as text, or NULL */
	const char *help;       /* one sentence without capital and stop; line feeds are not needed */
	const char *ext;        /* completion of files: suffixes as "jsonl|zst", NULL: any */
	unsigned flags;
	double min, max;        /* numbers: allowed range when min < max or only one is set; see opt_in_range */
	int (*fn)(const char *value, void *p, struct sky_err *err);
	const struct opt_row *table;    /* OPT_TABLE */
};

/* A pointer that must have type T *. */
#define OPT_P(T, p) (1 ? (p) : (T *)0)

#define OPT_HEAD(title) { .type = OPT_T_HEAD, .name = title }
#define OPT_TABLE(rows) { .type = OPT_T_TABLE, .table = rows }
#define OPT_END { .type = OPT_T_END }
#define OPT_ROW(t, T, l, n, ptr, a, d, h, ...) \
	{ .type = t, .letter = l, .name = n, .p = OPT_P(T, ptr), .arg = a, .def = d, .help = h, ##__VA_ARGS__ }
#define OPT_FLAG(l, n, ptr, d, h, ...) OPT_ROW(OPT_T_FLAG, bool, l, n, ptr, NULL, d, h, ##__VA_ARGS__)
#define OPT_UP(l, n, ptr, h, ...) OPT_ROW(OPT_T_UP, int, l, n, ptr, NULL, NULL, h, ##__VA_ARGS__)
#define OPT_INT(l, n, ptr, a, d, h, ...) OPT_ROW(OPT_T_INT, int64_t, l, n, ptr, a, d, h, ##__VA_ARGS__)
#define OPT_COUNT(l, n, ptr, a, d, h, ...) OPT_ROW(OPT_T_COUNT, int64_t, l, n, ptr, a, d, h, ##__VA_ARGS__)
#define OPT_SIZE(l, n, ptr, a, d, h, ...) OPT_ROW(OPT_T_SIZE, uint64_t, l, n, ptr, a, d, h, ##__VA_ARGS__)
#define OPT_TIME(l, n, ptr, a, d, h, ...) OPT_ROW(OPT_T_TIME, double, l, n, ptr, a, d, h, ##__VA_ARGS__)
#define OPT_REAL(l, n, ptr, a, d, h, ...) OPT_ROW(OPT_T_REAL, double, l, n, ptr, a, d, h, ##__VA_ARGS__)
#define OPT_TEXT(l, n, ptr, a, d, h, ...) OPT_ROW(OPT_T_TEXT, const char *, l, n, ptr, a, d, h, ##__VA_ARGS__)
#define OPT_FILE(l, n, ptr, a, d, h, ...) OPT_ROW(OPT_T_FILE, const char *, l, n, ptr, a, d, h, ##__VA_ARGS__)
#define OPT_DIR(l, n, ptr, a, d, h, ...) OPT_ROW(OPT_T_DIR, const char *, l, n, ptr, a, d, h, ##__VA_ARGS__)
#define OPT_CHOICE(l, n, ptr, a, d, h, ...) OPT_ROW(OPT_T_CHOICE, int, l, n, ptr, a, d, h, ##__VA_ARGS__)
#define OPT_TEXTS(l, n, ptr, a, h, ...) OPT_ROW(OPT_T_TEXTS, struct opt_list, l, n, ptr, a, NULL, h, ##__VA_ARGS__)
/* fn is called in the order of mention. a == NULL: takes no value, fn gets NULL. */
#define OPT_CALL(l, n, f, ptr, a, h, ...) \
	{ .type = OPT_T_CALL, .letter = l, .name = n, .p = ptr, .arg = a, .help = h, .fn = f, ##__VA_ARGS__ }

/* A dotted key of SkyRL (-c trainer.algorithm.eps_clip_low=0.2) and the option that it sets. Ends with NULL. */
struct opt_alias {
	const char *dotted, *option;
};

/* Was the option set by anything stronger than its default? The name must be in the table. */
bool opt_given(const char *name);
/* Where its value came from: "default", "option", "env SKYRL_SEED", "file run.conf:12". */
const char *opt_origin(const char *name);
/* The nearest of the names (NULL-terminated), or NULL when none is near. For messages: did you mean … */
const char *opt_nearest(const char *word, const char *const *names);

#ifdef __cplusplus
}
#endif
#endif
