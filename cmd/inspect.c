/* skyrl-inspect: identify, print and check the files that the toolkit reads and writes. */
#include "cmd/cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "cmd/inspect_int.h"

static struct {
	bool check, list;
} o;

static const struct opt_row rows[] = {
	OPT_FLAG(0, "check", &o.check, NULL, "read everything and apply every rule of the format; one line an operand"),
	OPT_FLAG('l', "list", &o.list, NULL, "also a line for each tensor, sample, row or version"),
	CMD_OPT_JSON,
	OPT_END
};

/* ---- reports ---- */

static void keep(struct report *r, int rc)
{
	if (rc < 0 && r->rc == 0) {
		r->rc = rc;
	}
}

SKY_PRINTF(3, 4)
static void line(struct report *r, const char *key, const char *fmt, ...)
{
	char value[4096], name[64];
	va_list ap;
	size_t i;

	va_start(ap, fmt);
	vsnprintf(value, sizeof(value), fmt, ap);
	va_end(ap);
	for (i = 0; key[i] && i + 1 < sizeof(name); i++) {
		name[i] = key[i] == '_' ? ' ' : key[i];
	}
	name[i] = '\0';
	keep(r, sky_buf_addf(&r->text, r->err, "  %-18s %s\n", strncmp(name, "n ", 2) == 0 ? name + 2 : name, value));
}

void rep_kind(struct report *r, const char *kind)
{
	snprintf(r->kind, sizeof(r->kind), "%s", kind);
}

void rep_str(struct report *r, const char *key, const char *v)
{
	if (v) {
		sky_jw_kstr(&r->w, key, v);
		line(r, key, "%s", v);
	}
}

void rep_i64(struct report *r, const char *key, int64_t v)
{
	sky_jw_ki64(&r->w, key, v);
	line(r, key, "%lld", (long long)v);
}

void rep_f64(struct report *r, const char *key, double v)
{
	sky_jw_kf64(&r->w, key, v);
	line(r, key, "%.6g", v);
}

void rep_bytes(struct report *r, const char *key, uint64_t v)
{
	char size[32];

	sky_jw_key(&r->w, key);
	sky_jw_u64(&r->w, v);
	line(r, key, "%llu (%s)", (unsigned long long)v, sky_fmt_size(size, sizeof(size), v));
}

void rep_bool(struct report *r, const char *key, bool v)
{
	sky_jw_kbool(&r->w, key, v);
	line(r, key, "%s", v ? "yes" : "no");
}

void rep_note(struct report *r, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	cmd_warn("%s: %s", r->path, text);
}

void rep_counts(struct report *r, const char *key, const char *const *names, const int64_t *n, int n_names)
{
	char text[1024] = "";
	size_t at = 0;
	int i;

	sky_jw_key(&r->w, key);
	sky_jw_obj(&r->w);
	for (i = 0; i < n_names; i++) {
		if (n[i] == 0) {
			continue;
		}
		sky_jw_ki64(&r->w, names[i], n[i]);
		if (at < sizeof(text) - 1) {
			at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s %lld", at ? ", " : "", names[i],
			                       (long long)n[i]);
		}
	}
	sky_jw_close_obj(&r->w);
	line(r, key, "%s", text);
}

struct sky_jw *rep_row_begin(struct report *r, struct sky_jw *w, const char *type)
{
	sky_buf_clear(&r->unused);
	sky_jw_init(w, cmd.json ? &r->rows : &r->unused, r->err);
	sky_jw_obj(w);
	sky_jw_kstr(w, "type", type);
	sky_jw_ki64(w, "v", 1);
	sky_jw_kstr(w, "path", r->path);
	return w;
}

void rep_row_end(struct report *r, struct sky_jw *w, const char *fmt, ...)
{
	char text[4096];
	va_list ap;

	sky_jw_close_obj(w);
	keep(r, sky_jw_end(w));
	if (!cmd.json) {
		va_start(ap, fmt);
		vsnprintf(text, sizeof(text), fmt, ap);
		va_end(ap);
		keep(r, sky_buf_addf(&r->rows, r->err, "    %s", text));
	}
	keep(r, sky_buf_addc(&r->rows, '\n', r->err));
}

/* ---- which kind ---- */

static bool in_dir(const char *dir, const char *name)
{
	char path[SKY_MAX_PATH];

	return sky_path_join(path, sizeof(path), dir, name, NULL) == 0 && sky_file_exists(path);
}

static int inspect_dir(struct report *r, const char *dir, struct sky_err *err)
{
	bool chain = false;
	int64_t version;
	size_t n, i;
	char **names;
	int rc;

	if (in_dir(dir, "latest_ckpt_global_step.txt") || in_dir(dir, "metrics.ndjson")) {
		return inspect_run(r, dir, err);
	}
	if (in_dir(dir, "manifest.json")) {
		return inspect_delta(r, dir, err);
	}
	rc = sky_list_dir(dir, &names, &n, err);
	if (rc < 0) {
		return rc;
	}
	for (i = 0; i < n; i++) {
		chain |= inspect_is_delta_name(names[i], &version);
	}
	sky_names_free(names, n);
	return chain ? inspect_delta_store(r, dir, err) : inspect_hf(r, dir, err);
}

static bool has_suffix(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n > m && strcmp(s + n - m, end) == 0;
}

/* A header length that fits and a brace: safetensors. Also when only the name says so: the reader then tells what is wrong. */
static bool looks_like_safetensors(const char *path)
{
	uint8_t head[9] = { 0 };
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int64_t n = 0;

	if (fd >= 0) {
		n = sky_read_full(fd, head, sizeof(head), path, NULL);
		close(fd);
	}
	return has_suffix(path, ".safetensors") || has_suffix(path, ".traj") ||
		(n == 9 && sky_load_u64(head) <= SKY_MAX_HEADER_BYTES && head[8] == '{');
}

static int inspect_file(struct report *r, const char *path, struct sky_err *err)
{
	struct sky_st *st = NULL;
	const char *format;
	bool traj;
	int rc;

	if (has_suffix(path, ".idx") || (has_suffix(path, ".bin") && !looks_like_safetensors(path))) {
		return inspect_tokens(r, path, err);
	}
	if (!looks_like_safetensors(path)) {
		return inspect_other(r, path, err);
	}
	rc = sky_st_open(path, &st, err);
	if (rc < 0) {
		return rc;
	}
	format = sky_st_meta(st, "format");
	traj = (format && strcmp(format, "skyrl-traj") == 0) || has_suffix(path, ".traj");
	sky_st_close(st);
	return traj ? inspect_traj(r, path, err) : inspect_safetensors(r, path, err);
}

static int inspect_any(struct report *r, const char *path, struct sky_err *err)
{
	char file[SKY_MAX_PATH];
	int n;

	if (sky_is_dir(path)) {
		return inspect_dir(r, path, err);
	}
	if (sky_file_exists(path)) {
		return inspect_file(r, path, err);
	}
	n = snprintf(file, sizeof(file), "%s.idx", path);
	if (n > 0 && (size_t)n < sizeof(file) && sky_file_exists(file)) {
		return inspect_tokens(r, path, err);
	}
	n = snprintf(file, sizeof(file), "%s.bin", path);
	if (n > 0 && (size_t)n < sizeof(file) && sky_file_exists(file)) {
		return sky_fail(err, SKY_E_MISSING, "%s.idx is missing beside %s.bin", path, path);
	}
	if (!strchr(path, '/')) {
		return sky_fail(err, SKY_E_MISSING, "%s: no such file, folder or token dataset", path);
	}
	return inspect_hf(r, path, err);
}

/* ---- output ---- */

static int print_report(struct report *r, struct sky_err *err)
{
	int rc;

	if (cmd.json) {
		rc = cmd_outf(err, "%s\n", r->json.ptr);
	} else if (r->check) {
		rc = cmd.quiet ? 0 : cmd_outf(err, "%s: %s, ok\n", r->path, r->kind);
	} else {
		rc = cmd_outf(err, "%s: %s\n%s", r->path, r->kind, r->text.ptr ? r->text.ptr : "");
	}
	if (rc == 0 && r->rows.n > 0) {
		rc = cmd_out(r->rows.ptr, r->rows.n, err);
	}
	return rc;
}

static int print_failure(const char *path, const struct sky_err *why, struct sky_err *err)
{
	struct sky_jw *w;

	cmd_error("%s", why->msg);
	if (!cmd.json) {
		return 0;
	}
	w = cmd_rec("error", err);
	sky_jw_ki64(w, "code", -why->code);
	sky_jw_kstr(w, "op", o.check ? "check" : "inspect");
	sky_jw_kstr(w, "item", path);
	sky_jw_kstr(w, "error", why->msg);
	return cmd_rec_end(err);
}

/* The facts come in any order behind the head of the record, and the kind is known last: both are put together here. */
static int finish(struct report *r, struct sky_err *err)
{
	struct sky_buf facts;
	struct sky_jw w;
	int rc;

	sky_jw_close_obj(&r->w);
	rc = sky_jw_end(&r->w);
	rc = rc < 0 ? rc : r->rc;
	facts = r->json;
	sky_buf_init(&r->json, SIZE_MAX);
	sky_jw_init(&w, &r->json, err);
	sky_jw_obj(&w);
	sky_jw_kstr(&w, "type", "inspect");
	sky_jw_ki64(&w, "v", 1);
	sky_jw_kstr(&w, "path", r->path);
	sky_jw_kstr(&w, "kind", r->kind);
	sky_jw_kbool(&w, "checked", r->check);
	sky_jw_close_obj(&w);
	rc = rc < 0 ? rc : sky_jw_end(&w);
	if (rc == 0 && facts.n > 2) {
		/* {…head} and {facts} become {…head,facts}. */
		r->json.ptr[r->json.n - 1] = ',';
		rc = sky_buf_add(&r->json, facts.ptr + 1, facts.n - 1, err);
	}
	sky_buf_release(&facts);
	return rc;
}

/* 0, the code of the failure that was reported, or SKY_E_SYS with *err when standard output fails. */
static int one(const char *path, int *code_p, struct sky_err *err)
{
	struct report r = { .path = path, .check = o.check, .list = o.list };
	struct sky_err why = { 0 };
	int rc;

	r.err = &why;
	sky_buf_init(&r.text, SIZE_MAX);
	sky_buf_init(&r.json, SIZE_MAX);
	sky_buf_init(&r.rows, SIZE_MAX);
	sky_buf_init(&r.unused, SIZE_MAX);
	sky_jw_init(&r.w, &r.json, &why);
	sky_jw_obj(&r.w);
	rc = inspect_any(&r, path, &why);
	rc = rc < 0 ? rc : finish(&r, &why);
	if (rc < 0) {
		*code_p = rc;
		rc = print_failure(path, &why, err);
	} else {
		*code_p = 0;
		rc = print_report(&r, err);
	}
	sky_buf_release(&r.text);
	sky_buf_release(&r.json);
	sky_buf_release(&r.rows);
	sky_buf_release(&r.unused);
	return rc;
}

static int inspect_run_all(int argc, char **argv, struct sky_err *err)
{
	/* The status of several operands: damage above absence above the rest. */
	static const int order[] = { SKY_E_DATA, SKY_E_MISSING, SKY_E_LIMIT, SKY_E_AGAIN, SKY_E_USAGE, SKY_E_SYS };
	int i, k, rc, code, n_bad = 0, worst = (int)(sizeof(order) / sizeof(order[0])) - 1;

	for (i = 0; i < argc; i++) {
		rc = one(argv[i], &code, err);
		if (rc < 0) {
			return rc;
		}
		n_bad += code < 0;
		for (k = 0; code < 0 && k < worst; k++) {
			if (order[k] == code) {
				worst = k;
			}
		}
	}
	if (n_bad == 0) {
		return 0;
	}
	return sky_fail(err, order[worst], "%d of %d %s", n_bad, argc, n_bad == 1 ? "is not in order" : "are not in order");
}

const struct cmd_prog cmd_prog = {
	.name = "skyrl-inspect",
	.title = "identify, print and check files",
	.usage = "[OPTION]… FILE|PREFIX|DIR…",
	.example = "skyrl-inspect --check model/ corpus rollout.traj",
	.rows = rows,
	.run = inspect_run_all,
	.flags = CMD_NEEDS_ARGS,
};
