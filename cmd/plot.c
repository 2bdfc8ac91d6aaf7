/* skyrl-plot: metrics (NDJSON, one object a line) to a picture, drawn by gnuplot as a child process.
 *
 *	skyrl-plot run/metrics.ndjson -o reward.png --key reward/avg_pass_at_1 --terminal
 *
 * One panel a key, one curve a file. Data goes to gnuplot in front of all commands and the commands fit a pipe, so that
 * neither side waits for the other; the picture comes back through a pipe and is published like any output. */
#include "cmd/cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/ndjson.h"
#include "base/num.h"
#include "base/proc.h"

#define PLOT_MAX_KEYS 16
#define PLOT_MAX_NAMES 1024     /* different keys in all files */
#define PLOT_MAX_FILES 16
#define PLOT_MAX_BYTES (256u << 20)
#define PLOT_WAIT_S 120.0

static struct {
	struct opt_list keys;
	const char *x, *title, *size;
	bool terminal, logscale, list;
} o;

static const struct opt_row rows[] = {
	OPT_HEAD("Options"),
	CMD_OPT_OUTPUT("FILE", "picture to write: .png or .svg; - is PNG on standard output"),
	CMD_OPT_FORCE,
	OPT_TEXTS('k', "key", &o.keys, "NAME", "what to draw, a panel each; may be repeated (without it: rewards and losses)"),
	OPT_TEXT('x', "x", &o.x, "NAME", NULL, "key of the horizontal axis (without it: step, else the line number)"),
	OPT_FLAG('t', "terminal", &o.terminal, NULL, "draw with characters on standard output; the default without -o"),
	OPT_FLAG(0, "list-keys", &o.list, NULL, "print the names of all numeric keys, and stop"),
	OPT_FLAG(0, "logscale", &o.logscale, NULL, "logarithmic vertical axis"),
	OPT_TEXT(0, "title", &o.title, "TEXT", NULL, "title of the picture"),
	OPT_TEXT(0, "size", &o.size, "WxH", NULL,
		"pixels, or characters with --terminal (without it: 1000 x 320 a panel; the width of the terminal)"),
	OPT_END
};

struct point {
	int64_t row;            /* object of the file, from 0 */
	int name;               /* index of its key */
	double v;               /* finite */
};

/* One metrics file: its numbers, row by row. */
struct series {
	const char *path;
	struct point *v;        /* n points, owned */
	int64_t n, cap, n_rows;
};

struct plot {
	char *names[PLOT_MAX_NAMES];            /* every numeric key, in order of appearance; owned */
	int n_names;
	struct series files[PLOT_MAX_FILES];
	int n_files;
	int keys[PLOT_MAX_KEYS], n_keys;        /* what is drawn: indices of names */
	int x;                                  /* index of the axis, or -1: line number */
};

static int name_find(const struct plot *p, const char *name)
{
	int i;

	for (i = 0; i < p->n_names; i++) {
		if (strcmp(p->names[i], name) == 0) {
			return i;
		}
	}
	return -1;
}

static int name_add(struct plot *p, const char *name, int *i_p, struct sky_err *err)
{
	*i_p = name_find(p, name);
	if (*i_p >= 0) {
		return 0;
	}
	if (p->n_names == PLOT_MAX_NAMES) {
		return sky_fail(err, SKY_E_LIMIT, "more than %d different keys", PLOT_MAX_NAMES);
	}
	p->names[p->n_names] = strdup(name);
	if (!p->names[p->n_names]) {
		return sky_fail_mem(err, "names of keys");
	}
	*i_p = p->n_names++;
	return 0;
}

static int add_point(struct series *s, int name, double v, struct sky_err *err)
{
	if (s->n == s->cap) {
		int64_t cap = s->cap * 2 + 1024;
		struct point *more = sky_realloc_array(s->v, (size_t)cap, sizeof(*more));

		if (!more) {
			return sky_fail_mem(err, "%s", s->path);
		}
		s->v = more;
		s->cap = cap;
	}
	s->v[s->n++] = (struct point){ s->n_rows, name, v };
	return 0;
}

static int read_object(struct plot *p, struct series *s, const struct sky_jnode *obj, struct sky_err *err)
{
	const struct sky_jnode *v;
	double d;
	int rc, name;

	for (v = sky_j_first(obj); v; v = sky_j_next(v)) {
		if (sky_j_f64(v, &d) && isfinite(d)) {
			rc = name_add(p, sky_j_key(v), &name, err);
			rc = rc < 0 ? rc : add_point(s, name, d, err);
			if (rc < 0) {
				return rc;
			}
		}
	}
	s->n_rows++;
	return 0;
}

/* A last line that is cut is that of a run in progress: it is left out with a note. */
static int read_lines(struct plot *p, struct series *s, int fd, struct sky_err *err)
{
	struct sky_lines lines;
	const char *line;
	size_t n;
	int rc;

	sky_lines_init(&lines, fd, s->path, SKY_MAX_RECORD_BYTES);
	while ((rc = sky_lines_next(&lines, -1, &line, &n, err)) == 0) {
		struct sky_json *doc = NULL;
		char where[SKY_MAX_PATH + 32];

		if (strspn(line, " \t") >= n) {
			continue;
		}
		snprintf(where, sizeof(where), "%s:%lld", s->path, (long long)lines.n_line);
		rc = sky_json_parse(line, n, where, SKY_JSON_PYTHON, &doc, err);
		if (rc < 0) {
			const char *more;
			struct sky_err last = { 0, 0, "" };

			if (sky_lines_next(&lines, -1, &more, &n, &last) == SKY_EOF && s->n_rows > 0) {
				cmd_note("%s: its last line is not complete and was left out", where);
				rc = SKY_EOF;
			}
			break;
		}
		if (sky_j_type(sky_json_root(doc)) != SKY_J_OBJECT) {
			rc = sky_fail(err, SKY_E_DATA, "%s: a metrics line is a JSON object", where);
		} else {
			rc = read_object(p, s, sky_json_root(doc), err);
		}
		sky_json_free(doc);
		if (rc < 0) {
			break;
		}
	}
	sky_lines_release(&lines);
	return rc == SKY_EOF ? 0 : rc;
}

static int read_file(struct plot *p, const char *path, struct sky_err *err)
{
	struct series *s = &p->files[p->n_files];
	bool in = strcmp(path, "-") == 0;
	int fd, rc;

	if (p->n_files == PLOT_MAX_FILES) {
		return sky_fail(err, SKY_E_USAGE, "more than %d files", PLOT_MAX_FILES);
	}
	s->path = in ? "standard input" : path;
	fd = in ? 0 : open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		return sky_fail_sys(err, "%s", path);
	}
	p->n_files++;
	rc = read_lines(p, s, fd, err);
	if (!in) {
		close(fd);
	}
	if (rc >= 0 && s->n == 0) {
		return sky_fail(err, SKY_E_DATA, "%s: no numbers in it", s->path);
	}
	return rc;
}

static void plot_release(struct plot *p)
{
	int i;

	for (i = 0; i < p->n_names; i++) {
		free(p->names[i]);
	}
	for (i = 0; i < p->n_files; i++) {
		free(p->files[i].v);
	}
}

/* ---- what to draw ---- */

static int missing_key(const struct plot *p, const char *key, struct sky_err *err)
{
	const char *names[PLOT_MAX_NAMES + 1], *near;
	char all[700] = "";
	size_t n = 0;
	int i;

	for (i = 0; i < p->n_names; i++) {
		names[i] = p->names[i];
		if (n < sizeof(all)) {
			n += (size_t)snprintf(all + n, sizeof(all) - n, "%s%s", i ? ", " : "", p->names[i]);
		}
	}
	names[i] = NULL;
	near = opt_nearest(key, names);
	return sky_fail(err, SKY_E_MISSING, "no key %s in %s%s%s%s%s (keys: %s%s)", key, p->files[0].path,
	                p->n_files > 1 ? " and the other files" : "", near ? "; did you mean " : "", near ? near : "",
	                near ? "?" : "", all, n >= sizeof(all) ? "…" : "");
}

static int key_add(struct plot *p, const char *key, struct sky_err *err)
{
	int i = name_find(p, key);

	if (i < 0) {
		return missing_key(p, key, err);
	}
	if (p->n_keys == PLOT_MAX_KEYS) {
		return sky_fail(err, SKY_E_USAGE, "more than %d keys in one picture", PLOT_MAX_KEYS);
	}
	p->keys[p->n_keys++] = i;
	return 0;
}

/* Rewards and losses by the names that SkyRL and our trainers use; else the first numbers that are no axis. */
static void keys_default(struct plot *p)
{
	static const char *const usual[] = { "reward/avg_pass_at_1", "reward/avg_raw_reward", "policy/final_loss", "policy_loss",
		"loss", "train/loss", "eval/loss", NULL };
	struct sky_err ignored;
	int i;

	for (i = 0; usual[i]; i++) {
		if (name_find(p, usual[i]) >= 0 && p->n_keys < 4 && key_add(p, usual[i], &ignored) < 0) {
			break;
		}
	}
	for (i = 0; p->n_keys == 0 && i < p->n_names && i < 4; i++) {
		if (i != p->x) {
			p->keys[p->n_keys++] = i;
		}
	}
	if (p->n_keys == 0) {
		p->keys[p->n_keys++] = 0;
	}
}

static int choose(struct plot *p, char **more, int n_more, struct sky_err *err)
{
	static const char *const axes[] = { "step", "trainer/global_step", "global_step", NULL };
	int64_t i;
	int rc = 0;

	p->x = -1;
	if (o.x) {
		p->x = name_find(p, o.x);
		if (p->x < 0) {
			return missing_key(p, o.x, err);
		}
	}
	for (i = 0; !o.x && p->x < 0 && axes[i]; i++) {
		p->x = name_find(p, axes[i]);
	}
	for (i = 0; rc >= 0 && i < o.keys.n; i++) {
		rc = key_add(p, o.keys.v[i], err);
	}
	for (i = 0; rc >= 0 && i < n_more; i++) {
		rc = key_add(p, more[i], err);
	}
	if (rc >= 0 && p->n_keys == 0) {
		keys_default(p);
	}
	return rc;
}

/* ---- the script ---- */

/* Text in gnuplot's double quotes; enhanced text is off, so only quotes, backslashes and control bytes matter. */
static int add_quoted(struct sky_buf *b, const char *s, struct sky_err *err)
{
	int rc = sky_buf_addc(b, '"', err);

	for (; rc >= 0 && *s; s++) {
		if (*s == '"' || *s == '\\' || *s == '`') {
			rc = sky_buf_addc(b, '\\', err);
		}
		rc = rc < 0 ? rc : sky_buf_addc(b, (unsigned char)*s < 0x20 ? ' ' : *s, err);
	}
	return rc < 0 ? rc : sky_buf_addc(b, '"', err);
}

/* Rows "x y" of one key of one file as a block $dFILE_KEY. The axis of a row may stand behind the value in it. */
static int add_data(struct sky_buf *b, const struct plot *p, int file, int key, int64_t *n_p, struct sky_err *err)
{
	const struct series *s = &p->files[file];
	char x[40], y[40];
	int64_t i, j, first = 0;
	int rc = sky_buf_addf(b, err, "$d%d_%d << E\n", file, key);

	*n_p = 0;
	for (i = 0; rc >= 0 && i < s->n; i++) {
		double at = (double)s->v[i].row + 1;
		bool have = p->x < 0;

		if (s->v[i].row != s->v[first].row) {
			first = i;
		}
		if (s->v[i].name != p->keys[key]) {
			continue;
		}
		for (j = first; p->x >= 0 && j < s->n && s->v[j].row == s->v[i].row; j++) {
			if (s->v[j].name == p->x) {
				at = s->v[j].v;
				have = true;
			}
		}
		if (have) {
			++*n_p;
			rc = sky_buf_addf(b, err, "%s %s\n", sky_fmt_f64(x, sizeof(x), at),
					  sky_fmt_f64(y, sizeof(y), s->v[i].v));
		}
	}
	return rc < 0 ? rc : sky_buf_adds(b, "E\n", err);
}

enum target { TO_PNG, TO_SVG, TO_TERMINAL };

static int add_terminal(struct sky_buf *b, enum target to, int w, int h, struct sky_err *err)
{
	static const char *const kinds[] = { "pngcairo noenhanced background '#ffffff' font 'sans,11'",
		"svg noenhanced background '#ffffff' font 'sans,12'", "dumb noenhanced" };

	return sky_buf_addf(b, err, "set terminal %s size %d,%d%s\n", kinds[to], w, h,
	                    to == TO_TERMINAL ? cmd_color(1) ? " ansi" : " mono" : "");
}

static int add_panel(struct sky_buf *b, const struct plot *p, int key, const int64_t *n_rows, enum target to,
                     struct sky_err *err)
{
	const char *style = to == TO_TERMINAL ? "with lines" : "with linespoints pointtype 7 pointsize 0.4 linewidth 1.5";
	const char *x = p->x < 0 ? "line" : p->names[p->x], *lead = "plot";
	int i, rc;

	rc = sky_buf_adds(b, "set xlabel ", err);
	rc = rc < 0 ? rc : add_quoted(b, x, err);
	rc = rc < 0 ? rc : sky_buf_adds(b, "\nset title ", err);
	rc = rc < 0 ? rc : add_quoted(b, p->names[p->keys[key]], err);
	rc = rc < 0 ? rc : sky_buf_adds(b, "\n", err);
	for (i = 0; rc >= 0 && i < p->n_files; i++) {
		if (n_rows[i] == 0) {
			continue;
		}
		rc = sky_buf_addf(b, err, "%s $d%d_%d using 1:2 %s title ", lead, i, key,
				  n_rows[i] == 1 ? "with points" : style);
		rc = rc < 0 ? rc : add_quoted(b, p->n_files > 1 ? p->files[i].path : "", err);
		lead = ",";
	}
	return rc < 0 ? rc : sky_buf_adds(b, "\n", err);
}

static int add_script(struct sky_buf *b, const struct plot *p, enum target to, int w, int h, struct sky_err *err)
{
	int64_t n_rows[PLOT_MAX_KEYS][PLOT_MAX_FILES];
	int k, f, rc = 0;

	for (k = 0; rc >= 0 && k < p->n_keys; k++) {
		int64_t sum = 0;

		for (f = 0; rc >= 0 && f < p->n_files; f++) {
			rc = add_data(b, p, f, k, &n_rows[k][f], err);
			sum += n_rows[k][f];
		}
		if (rc >= 0 && sum == 0) {
			return sky_fail(err, SKY_E_DATA, "key %s never stands in one line with %s",
					p->names[p->keys[k]], p->names[p->x]);
		}
	}
	rc = rc < 0 ? rc : add_terminal(b, to, w, h, err);
	rc = rc < 0 ? rc
		    : sky_buf_addf(b, err, "set encoding utf8\nset grid\n%s%s", o.logscale ? "set logscale y\n" : "",
				   p->n_files > 1 ? "set key outside bottom center horizontal\n" : "unset key\n");
	rc = rc < 0 ? rc : sky_buf_addf(b, err, "set multiplot layout %d,1", p->n_keys);
	if (rc >= 0 && o.title) {
		rc = sky_buf_adds(b, " title ", err);
		rc = rc < 0 ? rc : add_quoted(b, o.title, err);
	}
	rc = rc < 0 ? rc : sky_buf_adds(b, "\n", err);
	for (k = 0; rc >= 0 && k < p->n_keys; k++) {
		rc = add_panel(b, p, k, n_rows[k], to, err);
	}
	return rc < 0 ? rc : sky_buf_adds(b, "unset multiplot\nexit\n", err);
}

/* ---- gnuplot ---- */

/* All that gnuplot prints, until it closes the pipe; waits at most PLOT_WAIT_S for each piece. */
static int collect(int fd, struct sky_buf *out, struct sky_err *err)
{
	for (;;) {
		struct pollfd pf = { fd, POLLIN, 0 };
		char piece[65536];
		ssize_t n;
		int rc = poll(&pf, 1, (int)(PLOT_WAIT_S * 1000));

		if (rc == 0) {
			return sky_fail(err, SKY_E_AGAIN, "gnuplot gave no answer within %.0f s", PLOT_WAIT_S);
		}
		n = rc < 0 ? -1 : read(fd, piece, sizeof(piece));
		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n < 0) {
			return sky_fail_sys(err, "pipe from gnuplot");
		}
		if (n == 0) {
			return 0;
		}
		rc = sky_buf_add(out, piece, (size_t)n, err);
		if (rc < 0) {
			return sky_while(err, rc, "picture");
		}
	}
}

static int gnuplot(const struct sky_buf *script, struct sky_buf *out, struct sky_err *err)
{
	char name[] = "gnuplot", opt[] = "-d", dash[] = "-", text[128];
	char *argv[] = { name, opt, dash, NULL };
	struct sky_proc child = { 0, -1, -1, NULL };
	int rc, status = 0;

	rc = sky_proc_start(&child, argv, NULL, SKY_PROC_STDIN | SKY_PROC_STDOUT, err);
	if (rc == SKY_E_MISSING) {
		return sky_fail(err, SKY_E_MISSING, "gnuplot not found on PATH; on Debian the package is gnuplot-nox");
	}
	rc = rc < 0 ? rc : sky_write_full(child.in, script->ptr, script->n, "pipe to gnuplot", err);
	if (rc >= 0) {
		sky_proc_close_in(&child);
		rc = collect(child.out, out, err);
	}
	if (rc >= 0) {
		rc = sky_proc_wait(&child, PLOT_WAIT_S, &status, err);
		if (rc >= 0 && status != 0) {
			rc = sky_fail(err, SKY_E_SYS, "gnuplot %s", sky_proc_status_text(status, text, sizeof(text)));
		}
		if (rc >= 0 && out->n == 0) {
			rc = sky_fail(err, SKY_E_SYS, "gnuplot drew nothing; its message stands above");
		}
	}
	sky_proc_kill(&child, 0.1);
	return rc;
}

static int draw(const struct plot *p, enum target to, struct sky_buf *picture, struct sky_err *err)
{
	struct sky_buf script = SKY_BUF_INIT(PLOT_MAX_BYTES);
	int64_t w = to == TO_TERMINAL ? 79 : 1000, h = to == TO_TERMINAL ? 20 * p->n_keys : 320 * p->n_keys;
	const char *columns = getenv("COLUMNS");
	int rc;

	if (to == TO_TERMINAL && columns && sky_parse_i64(columns, &w, NULL) < 0) {
		w = 79;
	}
	if (o.size) {
		char num[16];
		size_t n = strcspn(o.size, "x");

		snprintf(num, sizeof(num), "%.*s", (int)n, o.size);
		if (o.size[n] != 'x' || sky_parse_i64(num, &w, NULL) < 0 ||
		    sky_parse_i64(o.size + n + 1, &h, NULL) < 0) {
			return sky_fail(err, SKY_E_USAGE, "--size %s: expected WIDTHxHEIGHT", o.size);
		}
	}
	if (w < 20 || h < 5 || w > 20000 || h > 20000) {
		return sky_fail(err, SKY_E_USAGE, "a picture of %lld x %lld is out of range", (long long)w,
				(long long)h);
	}
	rc = add_script(&script, p, to, (int)w, (int)h, err);
	rc = rc < 0 ? rc : gnuplot(&script, picture, err);
	sky_buf_release(&script);
	return rc;
}

/* ---- targets ---- */

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && strcmp(s + n - m, end) == 0;
}

static int to_file(const struct plot *p, struct sky_err *err)
{
	struct sky_buf picture = SKY_BUF_INIT(PLOT_MAX_BYTES);
	bool out = strcmp(cmd.output, "-") == 0;
	int rc = out ? cmd_out_binary(err) : 0;

	rc = rc < 0 ? rc : draw(p, ends_with(cmd.output, ".svg") ? TO_SVG : TO_PNG, &picture, err);
	if (rc >= 0 && out) {
		rc = cmd_out(picture.ptr, picture.n, err);
	} else if (rc >= 0) {
		rc = sky_file_publish(cmd.output, picture.ptr, picture.n, cmd.force ? SKY_OUT_REPLACE : 0, err);
	}
	sky_buf_release(&picture);
	return rc;
}

static int to_terminal(const struct plot *p, struct sky_err *err)
{
	struct sky_buf picture = SKY_BUF_INIT(PLOT_MAX_BYTES);
	int rc = draw(p, TO_TERMINAL, &picture, err);

	rc = rc < 0 ? rc : cmd_out(picture.ptr, picture.n, err);
	sky_buf_release(&picture);
	return rc;
}

static int list_keys(const struct plot *p, struct sky_err *err)
{
	int i, rc = 0;

	for (i = 0; rc >= 0 && i < p->n_names; i++) {
		rc = cmd_outf(err, "%s\n", p->names[i]);
	}
	return rc;
}

static int plot_run(int argc, char **argv, struct sky_err *err)
{
	static struct plot p;
	char *more[PLOT_MAX_KEYS + 1];
	int i, n_more = 0, rc = 0;
	char in[] = "-";

	if (cmd.output && strcmp(cmd.output, "-") != 0 && !ends_with(cmd.output, ".png") &&
	    !ends_with(cmd.output, ".svg")) {
		return sky_fail(err, SKY_E_USAGE, "--output %s: the name ends with .png or .svg", cmd.output);
	}
	for (i = 0; rc >= 0 && i < argc; i++) {
		/* --key A B: an operand that is no file is one more key */
		if (o.keys.n > 0 && n_more < PLOT_MAX_KEYS && strcmp(argv[i], "-") != 0 && !sky_file_exists(argv[i])) {
			more[n_more++] = argv[i];
		} else {
			rc = read_file(&p, argv[i], err);
		}
	}
	if (rc >= 0 && p.n_files == 0) {
		rc = n_more < argc ? 0 : read_file(&p, in, err);
	}
	if (rc >= 0 && o.list) {
		rc = list_keys(&p, err);
		goto out;
	}
	rc = rc < 0 ? rc : choose(&p, more, n_more, err);
	if (rc >= 0 && cmd.output) {
		rc = to_file(&p, err);
	}
	if (rc >= 0 && (o.terminal || !cmd.output)) {
		rc = to_terminal(&p, err);
	}
out:
	plot_release(&p);
	return rc;
}

const struct cmd_prog cmd_prog = {
	.name = "skyrl-plot",
	.title = "draw metrics",
	.usage = "[OPTION]… METRICS.ndjson…",
	.example = "skyrl-plot run/metrics.ndjson -o reward.png --key reward/avg_pass_at_1 --terminal",
	.rows = rows,
	.run = plot_run,
	.flags = CMD_STDIN | CMD_NO_SIGPIPE,
};
