/* Options: the active table, the command line, values into variables. Files and environment are conf.c, texts help.c. */
#include "cmd/cmd_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/num.h"

#define OPT_MAX_NEAR 64         /* longer words are not compared */
#define OPT_MAX_NAME 128

struct opt_set opt_set;

static const char *config_file;

static int call_help(const char *value, void *p, struct sky_err *err)
{
	(void)value;
	(void)err;
	*(bool *)p = true;
	return 0;
}

const struct opt_row opt_common_rows[] = {
	OPT_HEAD("Common options"),
	OPT_CALL('h', "help", call_help, &opt_set.help, NULL, "this text", .flags = OPT_NO_ENV | OPT_NO_CONF),
	OPT_CALL('V', "version", call_help, &opt_set.version, NULL, "version and licence; with -v what was compiled in",
		.flags = OPT_NO_ENV | OPT_NO_CONF),
	OPT_UP('v', "verbose", &cmd.verbose, "say more; may be repeated"),
	OPT_FLAG('q', "quiet", &cmd.quiet, NULL, "no notes and no progress; errors and warnings stay"),
	OPT_TEXT('c', "set", NULL, "KEY=VALUE", NULL, "an option by its dotted name in SkyRL; may be repeated",
		.flags = OPT_NO_ENV | OPT_NO_CONF),
	OPT_FILE(0, "config", &config_file, "FILE", NULL, "configuration file, instead of those of the user and the system",
		.flags = OPT_NO_CONF),
	OPT_CALL(0, "print-config", call_help, &opt_set.print_config, NULL, "print every setting with its origin, and stop",
		.flags = OPT_NO_ENV | OPT_NO_CONF),
	OPT_CHOICE(0, "progress", &cmd.progress, "auto|always|never", "auto", "progress line on a terminal"),
	OPT_TIME(0, "stats", &cmd.stats_s, "DURATION", "0", "a plain status line that often, 0 for none", .min = 0),
	OPT_CHOICE(0, "color", &cmd.color, "auto|always|never", "auto", "colour on a terminal"),
	OPT_CALL(0, "dump-options", call_help, &opt_set.dump, NULL, "the option table as NDJSON",
		.flags = OPT_HIDDEN | OPT_NO_ENV | OPT_NO_CONF),
	OPT_END
};

/* What the command line said, applied after files and environment. */
struct pending {
	int slot;
	const char *value;      /* NULL: none given */
	bool negated;
};

bool opt_is_option(const struct opt_row *row)
{
	return row->type > OPT_T_TABLE;
}

/* Values live as long as the program; the chain keeps leak checkers quiet about those that were replaced. */
struct kept {
	struct kept *next;
	char text[];
};

char *opt_keep(const char *s, size_t n)
{
	static struct kept *all;
	struct kept *k = malloc(sizeof(*k) + n + 1);

	if (!k) {
		return NULL;
	}
	memcpy(k->text, s, n);
	k->text[n] = '\0';
	k->next = all;
	all = k;
	return k->text;
}

static int table_rows(const struct opt_row *rows)
{
	int n = 0;

	for (; rows && rows->type != OPT_T_END; rows++) {
		n += rows->type == OPT_T_TABLE ? table_rows(rows->table) : 1;
	}
	return n;
}

static void table_fill(const struct opt_row *rows)
{
	for (; rows && rows->type != OPT_T_END; rows++) {
		if (rows->type == OPT_T_TABLE) {
			table_fill(rows->table);
		} else {
			memset(&opt_set.v[opt_set.n], 0, sizeof(opt_set.v[0]));
			opt_set.v[opt_set.n++].row = rows;
		}
	}
}

/* The active table: rows of the program or subcommand, then the common ones. */
static int table_build(const struct opt_row *rows, struct sky_err *err)
{
	free(opt_set.v);
	opt_set.n = 0;
	opt_set.v = sky_calloc_array((size_t)(table_rows(rows) + table_rows(opt_common_rows)), sizeof(opt_set.v[0]));
	if (!opt_set.v) {
		return sky_fail_mem(err, "option table");
	}
	table_fill(rows);
	table_fill(opt_common_rows);
	return 0;
}

int opt_find(const char *name)
{
	int i;

	for (i = 0; i < opt_set.n; i++) {
		if (opt_is_option(opt_set.v[i].row) && strcmp(opt_set.v[i].row->name, name) == 0) {
			return i;
		}
	}
	return -1;
}

static int find_letter(char letter)
{
	int i;

	for (i = 0; i < opt_set.n; i++) {
		if (opt_is_option(opt_set.v[i].row) && opt_set.v[i].row->letter == letter) {
			return i;
		}
	}
	return -1;
}

static bool table_has(const struct opt_row *rows, const char *name)
{
	for (; rows && rows->type != OPT_T_END; rows++) {
		if (rows->type == OPT_T_TABLE ? table_has(rows->table, name)
		    : opt_is_option(rows) && strcmp(rows->name, name) == 0) {
			return true;
		}
	}
	return false;
}

bool opt_known_anywhere(const char *name)
{
	const struct cmd_sub *sub;

	if (table_has(cmd_prog.rows, name) || table_has(opt_common_rows, name)) {
		return true;
	}
	for (sub = cmd_prog.subs; sub && sub->name; sub++) {
		if (table_has(sub->rows, name)) {
			return true;
		}
	}
	return false;
}

bool opt_given(const char *name)
{
	int slot = opt_find(name);

	return slot >= 0 && opt_set.v[slot].level > OPT_L_DEFAULT;
}

const char *opt_origin(const char *name)
{
	int slot = opt_find(name);

	return slot < 0 ? "?" : opt_set.v[slot].origin[0] ? opt_set.v[slot].origin : "unset";
}

/* Edits (insert, delete, replace, swap of neighbours) between two short words. */
static int edit_distance(const char *a, const char *b)
{
	int d[3][OPT_MAX_NEAR + 1];
	int n_a = (int)strlen(a), n_b = (int)strlen(b), i, j;

	for (j = 0; j <= n_b; j++) {
		d[0][j] = j;
	}
	for (i = 1; i <= n_a; i++) {
		int *row = d[i % 3], *up = d[(i + 2) % 3], *up2 = d[(i + 1) % 3];

		row[0] = i;
		for (j = 1; j <= n_b; j++) {
			int best = up[j - 1] + (a[i - 1] != b[j - 1]);

			best = best < up[j] + 1 ? best : up[j] + 1;
			best = best < row[j - 1] + 1 ? best : row[j - 1] + 1;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && up2[j - 2] + 1 < best) {
				best = up2[j - 2] + 1;
			}
			row[j] = best;
		}
	}
	return d[n_a % 3][n_b];
}

const char *opt_nearest(const char *word, const char *const *names)
{
	size_t n = strlen(word);
	int best = n < 3 ? 2 : n < 6 ? 3 : 4;   /* one above the largest accepted distance */
	const char *near = NULL;

	for (; n > 0 && n <= OPT_MAX_NEAR && *names; names++) {
		int d = strlen(*names) > OPT_MAX_NEAR ? best : edit_distance(word, *names);

		if (strncmp(*names, word, n) == 0 && best > 1) {
			d = 1;  /* an abbreviation */
		}
		if (d < best) {
			best = d;
			near = *names;
		}
	}
	return near;
}

static int unknown_option(const char *name, struct sky_err *err)
{
	const char **names = sky_calloc_array((size_t)opt_set.n + 1, sizeof(names[0]));
	const char *near = NULL;
	int i, n = 0;

	for (i = 0; names && i < opt_set.n; i++) {
		if (opt_is_option(opt_set.v[i].row) && !(opt_set.v[i].row->flags & OPT_HIDDEN)) {
			names[n++] = opt_set.v[i].row->name;
		}
	}
	if (names) {
		near = opt_nearest(name, names);
	}
	free(names);
	if (!near && opt_known_anywhere(name)) {
		return sky_fail(err, SKY_E_USAGE, "option --%s belongs to another subcommand (%s --help)", name,
				cmd_prog.name);
	}
	return sky_fail(err, SKY_E_USAGE, "unknown option --%s%s%s%s (--help lists the options)", name,
	                near ? "; did you mean --" : "", near ? near : "", near ? "?" : "");
}

/* ---- values ---- */

static int parse_bool(const char *s, bool *out)
{
	static const char *const words[2][5] = { { "no", "false", "off", "0", NULL }, { "yes", "true", "on", "1", NULL } };
	int v, i;

	for (v = 0; v < 2; v++) {
		for (i = 0; words[v][i]; i++) {
			if (strcmp(s, words[v][i]) == 0) {
				*out = v;
				return 0;
			}
		}
	}
	return -1;
}

static int parse_choice(const char *choices, const char *value, int *out)
{
	size_t n = strlen(value);
	int i;

	for (i = 0; *choices; i++) {
		size_t len = strcspn(choices, "|");

		if (len == n && memcmp(choices, value, n) == 0) {
			*out = i;
			return 0;
		}
		choices += len + (choices[len] == '|');
	}
	return -1;
}

static int check_range(const struct opt_row *row, double v, struct sky_err *err)
{
	bool limited = row->min != 0 || row->max != 0;

	if (isnan(v)) {
		return sky_fail(err, SKY_E_USAGE, "not a number");
	}
	if (limited && v < row->min) {
		return sky_fail(err, SKY_E_USAGE, "%.12g is below the least allowed value %.12g", v, row->min);
	}
	if (limited && row->max > row->min && v > row->max) {
		return sky_fail(err, SKY_E_USAGE, "%.12g is above the largest allowed value %.12g", v, row->max);
	}
	return 0;
}

static int set_list(struct opt_slot *s, const char *value, enum opt_level level, struct sky_err *err)
{
	struct opt_list *l = s->row->p;

	if (level > s->level) {
		l->n = 0;
	}
	if (l->n == s->cap) {
		const char **v = sky_realloc_array(l->v, (size_t)s->cap * 2 + 4, sizeof(l->v[0]));

		if (!v) {
			return sky_fail_mem(err, "list of values");
		}
		l->v = v;
		s->cap = s->cap * 2 + 4;
	}
	l->v[l->n++] = value;
	return 0;
}

static int set_number(const struct opt_row *row, const char *value, struct sky_err *err)
{
	int64_t i = 0;
	uint64_t u = 0;
	double d = 0;
	int rc;

	switch (row->type) {
	case OPT_T_UP:
	case OPT_T_INT:
		rc = sky_parse_i64(value, &i, err);
		d = (double)i;
		break;
	case OPT_T_COUNT:
		rc = sky_parse_count(value, &i, err);
		d = (double)i;
		if (rc == 0 && i < 0) {
			rc = sky_fail(err, SKY_E_USAGE, "%s is negative", value);
		}
		break;
	case OPT_T_SIZE:
		rc = sky_parse_size(value, &u, err);
		d = (double)u;
		break;
	case OPT_T_TIME:
		rc = sky_parse_duration(value, &d, err);
		break;
	default:
		rc = sky_parse_f64(value, &d, err);
		break;
	}
	rc = rc < 0 ? rc : check_range(row, d, err);
	if (rc < 0) {
		return rc;
	}
	if (row->type == OPT_T_UP) {
		*(int *)row->p = (int)(i < 0 ? 0 : i > 9 ? 9 : i);
	} else if (row->type == OPT_T_SIZE) {
		*(uint64_t *)row->p = u;
	} else if (row->type == OPT_T_INT || row->type == OPT_T_COUNT) {
		*(int64_t *)row->p = i;
	} else {
		*(double *)row->p = d;
	}
	return 0;
}

static int set_value(struct opt_slot *s, const char *value, enum opt_level level, struct sky_err *err)
{
	const struct opt_row *row = s->row;

	switch (row->type) {
	case OPT_T_FLAG:
		if (parse_bool(value, row->p) < 0) {
			return sky_fail(err, SKY_E_USAGE, "\"%s\" is neither yes nor no", value);
		}
		return 0;
	case OPT_T_TEXT:
	case OPT_T_FILE:
	case OPT_T_DIR:
		*(const char **)row->p = value;
		return 0;
	case OPT_T_CHOICE:
		if (parse_choice(row->arg, value, row->p) < 0) {
			return sky_fail(err, SKY_E_USAGE, "\"%s\" is none of %s", value, row->arg);
		}
		return 0;
	case OPT_T_TEXTS:
		return set_list(s, value, level, err);
	case OPT_T_CALL:
		return row->fn(value, row->p, err);
	default:
		return set_number(row, value, err);
	}
}

int opt_set_text(int slot, const char *value, enum opt_level level, const char *origin, struct sky_err *err)
{
	struct opt_slot *s = &opt_set.v[slot];
	const char *kept = opt_keep(value, strlen(value));
	int rc;

	if (!kept) {
		return sky_fail_mem(err, "value of --%s", s->row->name);
	}
	rc = set_value(s, kept, level, err);
	if (rc < 0) {
		if (err && rc != SKY_E_LIMIT && rc != SKY_E_MISSING) {
			err->code = rc = SKY_E_USAGE;
		}
		if (level == OPT_L_OPTION || level == OPT_L_DEFAULT) {
			return sky_while(err, rc, "--%s", s->row->name);
		}
		return sky_while(err, rc, "%s: %s", origin, s->row->name);
	}
	s->text = kept;
	s->level = level;
	snprintf(s->origin, sizeof(s->origin), "%s", origin);
	return 0;
}

int opt_set_dotted(const char *pair, enum opt_level level, const char *origin, struct sky_err *err)
{
	const struct opt_alias *aliases = opt_set.sub && opt_set.sub->aliases ? opt_set.sub->aliases : cmd_prog.aliases;
	const struct opt_alias *a;
	const char *eq = strchr(pair, '=');
	const char *names[256], *near;
	char key[OPT_MAX_NAME];
	int rc, n = 0;

	if (!eq || eq == pair || (size_t)(eq - pair) >= sizeof(key)) {
		return sky_fail(err, SKY_E_USAGE, "-c %s: expected KEY=VALUE", pair);
	}
	memcpy(key, pair, (size_t)(eq - pair));
	key[eq - pair] = '\0';
	for (a = aliases; a && a->dotted; a++) {
		if (strcmp(a->dotted, key) == 0 && opt_find(a->option) >= 0) {
			return sky_while(err, opt_set_text(opt_find(a->option), eq + 1, level, origin, err), "%s", key);
		}
		if (n < 255) {
			names[n++] = a->dotted;
		}
	}
	names[n] = NULL;
	rc = cmd_prog.dotted ? cmd_prog.dotted(key, eq + 1, err) : SKY_EOF;
	if (rc != SKY_EOF) {
		return sky_while(err, rc, "-c %s", key);
	}
	if (opt_find(key) >= 0) {
		return opt_set_text(opt_find(key), eq + 1, level, origin, err);
	}
	near = opt_nearest(key, names);
	return sky_fail(err, SKY_E_USAGE, "unknown key %s%s%s%s", key, near ? "; did you mean " : "", near ? near : "",
	                near ? "?" : "");
}

void opt_env_name(const char *name, char *out, size_t cap)
{
	size_t i;

	snprintf(out, cap, "SKYRL_%s", name);
	for (i = 6; out[i]; i++) {
		out[i] = out[i] == '-' ? '_' : out[i] >= 'a' && out[i] <= 'z' ? (char)(out[i] - 'a' + 'A') : out[i];
	}
}

/* ---- the command line ---- */

static bool takes_value(const struct opt_row *row)
{
	return row->arg != NULL;
}

/* One argument "--name[=value]"; *i_p moves over a separate value. */
static int parse_long(int argc, char **argv, int *i_p, struct pending *out, struct sky_err *err)
{
	const char *arg = argv[*i_p] + 2, *eq = strchr(arg, '=');
	size_t n = strcspn(arg, "=");
	char name[OPT_MAX_NAME];
	int slot;

	n = n < sizeof(name) ? n : sizeof(name) - 1;    /* a longer one is no option either */
	memcpy(name, arg, n);
	name[n] = '\0';
	out->negated = false;
	slot = opt_find(name);
	if (slot < 0 && strncmp(name, "no-", 3) == 0) {
		slot = opt_find(name + 3);
		out->negated = slot >= 0 && opt_set.v[slot].row->type == OPT_T_FLAG;
		slot = out->negated ? slot : -1;
	}
	if (slot < 0) {
		return unknown_option(name, err);
	}
	out->slot = slot;
	out->value = eq ? eq + 1 : NULL;
	if (takes_value(opt_set.v[slot].row)) {
		if (!eq && *i_p + 1 >= argc) {
			return sky_fail(err, SKY_E_USAGE, "option --%s needs a value (%s)", name,
					opt_set.v[slot].row->arg);
		}
		out->value = eq ? eq + 1 : argv[++*i_p];
	} else if (eq && (out->negated || opt_set.v[slot].row->type != OPT_T_FLAG)) {
		return sky_fail(err, SKY_E_USAGE, "option --%s takes no value", name);
	}
	return 0;
}

/* One argument "-abcVALUE": appends to list. */
static int parse_short(int argc, char **argv, int *i_p, struct pending *list, int *n_p, struct sky_err *err)
{
	const char *p;

	for (p = argv[*i_p] + 1; *p; p++) {
		int slot = find_letter(*p);
		struct pending *e = &list[*n_p];

		if (slot < 0) {
			return sky_fail(err, SKY_E_USAGE, "unknown option -%c (--help lists the options)", *p);
		}
		e->slot = slot;
		e->value = NULL;
		e->negated = false;
		++*n_p;
		if (takes_value(opt_set.v[slot].row)) {
			if (p[1] == '\0' && *i_p + 1 >= argc) {
				return sky_fail(err, SKY_E_USAGE, "option -%c needs a value (%s)", *p,
						opt_set.v[slot].row->arg);
			}
			e->value = p[1] ? p + 1 : argv[++*i_p];
			return 0;
		}
	}
	return 0;
}

/* The subcommand: the first operand behind nothing but common options. *i_p is its index. */
static const struct cmd_sub *find_sub(int argc, char **argv, int *i_p)
{
	const struct cmd_sub *sub;
	struct pending skip[OPT_MAX_NEAR];
	struct sky_err ignored;
	int i, n = 0;

	for (i = 1; i < argc && cmd_prog.subs; i++) {
		if (strncmp(argv[i], "--", 2) == 0 && argv[i][2]) {
			if (parse_long(argc, argv, &i, skip, &ignored) < 0) {
				return NULL;
			}
		} else if (argv[i][0] == '-' && argv[i][1] && argv[i][1] != '-') {
			n = 0;
			if (strlen(argv[i]) > OPT_MAX_NEAR || parse_short(argc, argv, &i, skip, &n, &ignored) < 0) {
				return NULL;
			}
		} else {
			for (sub = cmd_prog.subs; sub->name; sub++) {
				if (strcmp(sub->name, argv[i]) == 0) {
					*i_p = i;
					return sub;
				}
			}
			return NULL;
		}
	}
	return NULL;
}

/* Splits argv into pending options and operands. list has room for every character of argv. */
static int split(int argc, char **argv, int i_sub, struct pending *list, int *n_p, struct sky_err *err)
{
	unsigned flags = opt_set.sub ? opt_set.sub->flags : cmd_prog.flags;
	bool ended = false;
	int rc, i;

	for (i = 1; i < argc; i++) {
		const char *arg = argv[i];

		if (i == i_sub) {
			continue;
		}
		if (!ended && strcmp(arg, "--") == 0) {
			ended = true;
		} else if (!ended && arg[0] == '-' && arg[1] == '-') {
			rc = parse_long(argc, argv, &i, &list[*n_p], err);
			if (rc < 0) {
				return rc;
			}
			++*n_p;
		} else if (!ended && arg[0] == '-' && arg[1]) {
			rc = parse_short(argc, argv, &i, list, n_p, err);
			if (rc < 0) {
				return rc;
			}
		} else {
			opt_set.operands[opt_set.n_operands++] = argv[i];
			ended = ended || (flags & CMD_RAW_TAIL);
		}
	}
	return 0;
}

static int apply(const struct pending *e, struct sky_err *err)
{
	struct opt_slot *s = &opt_set.v[e->slot];
	const struct opt_row *row = s->row;

	if (row->type == OPT_T_UP && !e->value) {
		++*(int *)row->p;
		s->level = OPT_L_OPTION;
		snprintf(s->origin, sizeof(s->origin), "option");
		return 0;
	}
	if (row->type == OPT_T_TEXT && !row->p) {       /* -c */
		return opt_set_dotted(e->value, OPT_L_OPTION, "option", err);
	}
	if (row->type == OPT_T_CALL && !row->arg) {
		s->level = OPT_L_OPTION;
		return row->fn(NULL, row->p, err);
	}
	return opt_set_text(e->slot, e->value ? e->value : e->negated ? "no" : "yes", OPT_L_OPTION, "option", err);
}

static int apply_defaults(struct sky_err *err)
{
	int i, rc;

	for (i = 0; i < opt_set.n; i++) {
		const struct opt_row *row = opt_set.v[i].row;

		if (opt_is_option(row) && row->def) {
			rc = opt_set_text(i, row->def, OPT_L_DEFAULT, "default", err);
			if (rc < 0) {
				return rc;
			}
		}
	}
	return 0;
}

static int check_required(struct sky_err *err)
{
	int i;

	for (i = 0; i < opt_set.n; i++) {
		const struct opt_slot *s = &opt_set.v[i];

		if (opt_is_option(s->row) && (s->row->flags & OPT_REQUIRED) && s->level == OPT_L_NONE) {
			return sky_fail(err, SKY_E_USAGE, "option --%s %s is required: %s", s->row->name, s->row->arg,
					s->row->help);
		}
	}
	return 0;
}

/* Requests for information come first, so that neither a broken file nor another option stands in their way. */
static bool wants_information(const struct pending *list, int n)
{
	int i;

	for (i = 0; i < n; i++) {
		const struct opt_row *row = opt_set.v[list[i].slot].row;

		if (row->type == OPT_T_CALL && row->fn == call_help && row->p != &opt_set.print_config) {
			*(bool *)row->p = true;
		} else if (row->type == OPT_T_UP && !list[i].value) {
			++*(int *)row->p;
		}
	}
	if (opt_set.help || opt_set.version || opt_set.dump) {
		return true;
	}
	cmd.verbose = 0;
	return false;
}

static int apply_all(const struct pending *list, int n, struct sky_err *err)
{
	const char *config = NULL;
	int rc, i;

	for (i = 0; i < n; i++) {
		if (opt_set.v[list[i].slot].row->p == &config_file) {
			config = list[i].value;
		}
	}
	rc = apply_defaults(err);
	rc = rc < 0 ? rc : conf_load(config, err);
	for (i = 0; rc >= 0 && i < n; i++) {
		rc = apply(&list[i], err);
	}
	if (rc >= 0 && !opt_set.print_config) {
		rc = check_required(err);
	}
	return rc;
}

int opt_parse(int argc, char **argv, struct sky_err *err)
{
	struct pending *list = NULL;
	size_t chars = 0;
	int rc, i, i_sub = 0, n = 0;

	rc = table_build(NULL, err);
	if (rc < 0) {
		return rc;
	}
	opt_set.sub = find_sub(argc, argv, &i_sub);
	rc = table_build(opt_set.sub ? opt_set.sub->rows : cmd_prog.rows, err);
	if (rc < 0) {
		return rc;
	}
	for (i = 0; i < argc; i++) {
		chars += strlen(argv[i]) + 1;
	}
	list = sky_calloc_array(chars + 1, sizeof(list[0]));
	opt_set.operands = sky_calloc_array((size_t)argc + 1, sizeof(opt_set.operands[0]));
	if (!list || !opt_set.operands) {
		rc = sky_fail_mem(err, "command line");
		goto out;
	}
	rc = split(argc, argv, i_sub, list, &n, err);
	if (rc >= 0 && !wants_information(list, n)) {
		rc = apply_all(list, n, err);
	}
out:
	free(list);
	return rc;
}
