/* The list of inputs: globs, folders, save_to_disk sets, URLs; formats by name and by first bytes. */
#include <errno.h>
#include <fnmatch.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "corpus/source_int.h"

struct list {
	struct input *v;
	int64_t n, cap;
};

static const struct { const char *suffix; enum sky_input_format f; } suffixes[] = {
	{ ".jsonl", SKY_IN_JSONL }, { ".ndjson", SKY_IN_JSONL }, { ".json", SKY_IN_JSON }, { ".txt", SKY_IN_TEXT },
	{ ".text", SKY_IN_TEXT }, { ".parquet", SKY_IN_PARQUET }, { ".arrow", SKY_IN_ARROW }, { ".arrows", SKY_IN_ARROW },
	{ ".feather", SKY_IN_ARROW }, { ".ipc", SKY_IN_ARROW }, { ".tar", SKY_IN_TAR }, { ".tgz", SKY_IN_TAR },
};

static bool ends_with(const char *s, size_t n, const char *suffix)
{
	size_t m = strlen(suffix);

	return n >= m && !memcmp(s + n - m, suffix, m);
}

enum sky_input_format format_by_name(const char *name)
{
	static const char *const packed[] = { ".gz", ".zst", ".zstd", ".xz", ".bz2" };
	size_t n = strlen(name);

	for (size_t i = 0; i < sizeof packed / sizeof *packed; i++) {
		if (ends_with(name, n, packed[i])) {
			n -= strlen(packed[i]);
			break;
		}
	}
	for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
		if (ends_with(name, n, suffixes[i].suffix)) {
			return suffixes[i].f;
		}
	}
	return SKY_IN_AUTO;
}

enum sky_input_format format_by_head(const char *head, size_t n)
{
	size_t i = 0;

	if (n >= 4 && (!memcmp(head, "PAR1", 4) || !memcmp(head, "PARE", 4))) {
		return SKY_IN_PARQUET;
	}
	if (n >= 6 && !memcmp(head, "ARROW1", 6)) {
		return SKY_IN_ARROW;
	}
	if (n >= 8 && !memcmp(head, "\xff\xff\xff\xff", 4)) {
		return SKY_IN_ARROW;
	}
	if (n >= 262 && !memcmp(head + 257, "ustar", 5)) {
		return SKY_IN_TAR;
	}
	i += n >= 3 && !memcmp(head, "\xef\xbb\xbf", 3) ? 3 : 0;
	while (i < n && strchr(" \t\r\n", head[i]) && head[i]) {
		i++;
	}
	return i < n && head[i] == '[' ? SKY_IN_JSON : SKY_IN_AUTO;
}

static int add(struct list *l, const char *name, bool is_file, const struct stat *st, struct sky_err *err)
{
	struct input *v;

	if (l->n == l->cap) {
		l->cap = l->cap ? 2 * l->cap : 16;
		v = sky_realloc_array(l->v, (size_t)l->cap, sizeof *v);
		if (!v) {
			return sky_fail_mem(err, "a list of %lld inputs", (long long)l->n);
		}
		l->v = v;
	}
	v = &l->v[l->n];
	memset(v, 0, sizeof *v);
	v->name = strdup(name);
	if (!v->name) {
		return sky_fail_mem(err, "a list of %lld inputs", (long long)l->n);
	}
	v->is_file = is_file;
	if (is_file) {
		v->bytes = (uint64_t)st->st_size;
		v->mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
	}
	l->n++;
	return 0;
}

/* The shards of a save_to_disk folder, in the order that its state.json gives. */
static int add_saved(struct list *l, const char *dir, const char *state, struct sky_err *err)
{
	struct sky_json *doc = NULL;
	const struct sky_jnode *files;
	char path[SKY_MAX_PATH];
	struct stat st;
	int rc = sky_json_load(state, 0, &doc, err);

	files = rc ? NULL : sky_j_get(sky_json_root(doc), "_data_files");
	if (!rc && sky_j_type(files) != SKY_J_ARRAY) {
		rc = sky_fail(err, SKY_E_DATA, "%s: no list _data_files: not written by save_to_disk", state);
	}
	for (const struct sky_jnode *f = sky_j_first(files); !rc && f; f = sky_j_next(f)) {
		const char *name = sky_j_str(sky_j_get(f, "filename"));

		if (!name || strchr(name, '/')) {
			rc = sky_fail(err, SKY_E_DATA, "%s: a data file without a plain name", state);
			break;
		}
		rc = sky_path_join(path, sizeof path, dir, name, err);
		if (!rc && stat(path, &st)) {
			rc = sky_fail_sys(err, "%s (named by %s)", path, state);
		}
		rc = rc ? rc : add(l, path, S_ISREG(st.st_mode), &st, err);
	}
	sky_json_free(doc);
	return rc;
}

static int add_path(struct list *l, const char *path, bool chosen, int depth, struct sky_err *err);

/* Files of known suffix below a folder, sorted by bytes, names that begin with a dot left out. */
static int add_dir(struct list *l, const char *dir, int depth, struct sky_err *err)
{
	char path[SKY_MAX_PATH], **names = NULL;
	size_t n = 0;
	int rc = sky_path_join(path, sizeof path, dir, "state.json", err);

	if (!rc && sky_file_exists(path)) {
		return add_saved(l, dir, path, err);
	}
	rc = rc ? rc : sky_path_join(path, sizeof path, dir, "dataset_dict.json", err);
	if (!rc && sky_file_exists(path)) {
		return sky_fail(err, SKY_E_USAGE, "%s: several splits; name one of its folders (%s/train)", dir, dir);
	}
	rc = rc ? rc : sky_list_dir(dir, &names, &n, err);
	for (size_t i = 0; !rc && i < n; i++) {
		if (names[i][0] != '.') {
			rc = sky_path_join(path, sizeof path, dir, names[i], err);
			rc = rc ? rc : add_path(l, path, false, depth + 1, err);
		}
	}
	sky_names_free(names, n);
	return rc;
}

static int add_path(struct list *l, const char *path, bool chosen, int depth, struct sky_err *err)
{
	struct stat st;

	if (stat(path, &st)) {
		return sky_fail_sys(err, "%s", path);
	}
	if (S_ISDIR(st.st_mode)) {
		int64_t before = l->n;
		int rc = depth > 32 ? sky_fail(err, SKY_E_LIMIT, "%s: more than 32 folders deep", path) : add_dir(l,
				path, depth, err);

		if (!rc && chosen && l->n == before) {
			rc = sky_fail(err, SKY_E_MISSING,
					"%s: no .jsonl, .json, .txt, .parquet, .arrow or .tar file in this folder", path);
		}
		return rc;
	}
	if (!chosen && format_by_name(path) == SKY_IN_AUTO) {
		return 0;
	}
	return add(l, path, S_ISREG(st.st_mode), &st, err);
}

static int add_glob(struct list *l, const char *pattern, struct sky_err *err)
{
	glob_t g;
	int rc = 0, how = glob(pattern, GLOB_NOSORT, NULL, &g);

	if (how == GLOB_NOMATCH) {
		return sky_fail(err, SKY_E_MISSING, "%s: no file matches", pattern);
	}
	if (how) {
		return how == GLOB_NOSPACE ? sky_fail_mem(err, "%s", pattern) :
		       sky_fail(err, SKY_E_SYS, "%s: a folder of the pattern cannot be read", pattern);
	}
	/* Sorted by bytes, not by the collation of the locale. */
	for (size_t i = 1; i < g.gl_pathc; i++) {
		for (size_t k = i; k && strcmp(g.gl_pathv[k - 1], g.gl_pathv[k]) > 0; k--) {
			char *t = g.gl_pathv[k];

			g.gl_pathv[k] = g.gl_pathv[k - 1];
			g.gl_pathv[k - 1] = t;
		}
	}
	for (size_t i = 0; !rc && i < g.gl_pathc; i++) {
		rc = add_path(l, g.gl_pathv[i], true, 0, err);
	}
	globfree(&g);
	return rc;
}

/* An URL that ends with '/' or has a pattern behind its last '/': the objects of known suffix that it names, by key. */
static int add_listing(struct list *l, const char *url, const struct sky_store_opt *opt, struct sky_err *err)
{
	const char *slash = strrchr(url, '/'), *pattern = slash[1] ? slash + 1 : "*";
	struct sky_store *s = NULL;
	struct sky_object *o = NULL;
	char base[SKY_MAX_PATH], name[SKY_MAX_PATH];
	int64_t n = 0, before = l->n;
	int rc;

	if ((size_t)snprintf(base, sizeof base, "%.*s", (int)(slash - url), url) >= sizeof base) {
		return sky_fail(err, SKY_E_LIMIT, "%s: too long", url);
	}
	rc = sky_store_open(base, opt, &s, err);
	rc = rc ? rc : sky_store_list(s, "", slash[1] ? SKY_LIST_SHALLOW : 0, &o, &n, err);
	for (int64_t i = 0; !rc && i < n; i++) {
		if (format_by_name(o[i].key) == SKY_IN_AUTO || fnmatch(pattern, o[i].key, 0)) {
			continue;
		}
		if ((size_t)snprintf(name, sizeof name, "%s/%s", base, o[i].key) >= sizeof name) {
			rc = sky_fail(err, SKY_E_LIMIT, "%s/%s: too long", base, o[i].key);
			break;
		}
		rc = add(l, name, false, NULL, err);
		l->v[l->n - 1].bytes = rc ? 0 : o[i].bytes;
	}
	if (!rc && l->n == before) {
		rc = sky_fail(err, SKY_E_MISSING, "%s: no object of a known suffix", url);
	}
	sky_objects_free(o, n);
	sky_store_close(s);
	return rc;
}

int inputs_expand(const char *const *names, int64_t n_name, const struct sky_store_opt *store, struct input **v_p,
		int64_t *n_p,
                  struct sky_err *err)
{
	struct list l = { 0 };
	int rc = 0;

	for (int64_t i = 0; !rc && i < n_name; i++) {
		const char *s = names[i];
		struct stat st;

		if (strstr(s, "://") && (s[strlen(s) - 1] == '/' || strpbrk(strrchr(s, '/'), "*?["))) {
			rc = add_listing(&l, s, store, err);
		} else if (!strcmp(s, "-") || strstr(s, "://")) {
			rc = add(&l, s, false, NULL, err);
		} else if (stat(s, &st) && errno == ENOENT && strpbrk(s, "*?[")) {
			rc = add_glob(&l, s, err);
		} else {
			rc = add_path(&l, s, true, 0, err);
		}
	}
	if (rc < 0) {
		inputs_free(l.v, l.n);
		return rc;
	}
	*v_p = l.v;
	*n_p = l.n;
	return 0;
}

void inputs_free(struct input *v, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		free(v[i].name);
	}
	free(v);
}
