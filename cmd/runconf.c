/* Options of a run in its config.json. */
#include "cmd/cmd.h"
#include "cmd/runconf.h"
#include "base/base.h"

#include <stdlib.h>

static void put(struct sky_jw *w, const struct runconf_row *r)
{
	const struct opt_list *l = r->p;

	sky_jw_key(w, r->name);
	switch (r->type) {
	case RUNCONF_TEXT:
		if (*(const char **)r->p) {
			sky_jw_str(w, *(const char **)r->p);
		} else {
			sky_jw_null(w);
		}
		break;
	case RUNCONF_TEXTS:
		sky_jw_arr(w);
		for (int64_t i = 0; i < l->n; i++) {
			sky_jw_str(w, l->v[i]);
		}
		sky_jw_close_arr(w);
		break;
	case RUNCONF_INT:
		sky_jw_i64(w, *(int64_t *)r->p);
		break;
	case RUNCONF_REAL:
		sky_jw_f64(w, *(double *)r->p);
		break;
	case RUNCONF_FLAG:
		sky_jw_bool(w, *(bool *)r->p);
		break;
	default:
		sky_jw_i64(w, *(int *)r->p);
		break;
	}
}

int runconf_save(const struct runconf_row *rows, const char *path, struct sky_err *err)
{
	struct sky_buf text = SKY_BUF_INIT(SKY_MAX_RECORD_BYTES);
	struct sky_jw w;
	int rc;

	sky_jw_init(&w, &text, err);
	sky_jw_obj(&w);
	for (; rows->name; rows++) {
		put(&w, rows);
	}
	sky_jw_close_obj(&w);
	rc = sky_jw_end(&w);
	rc = rc < 0 ? rc : sky_buf_addc(&text, '\n', err);
	rc = rc < 0 ? rc : sky_file_publish(path, text.ptr, text.n, SKY_OUT_REPLACE, err);
	sky_buf_release(&text);
	return rc;
}

/* A list of strings that lives on. */
static int get_texts(struct opt_list *l, const struct sky_jnode *v, struct sky_err *err)
{
	const char **p = sky_calloc_array(sky_j_len(v) + 1, sizeof(*p));
	int64_t n = 0;

	for (const struct sky_jnode *x = sky_j_first(v); p && x; x = sky_j_next(x)) {
		p[n] = sky_j_str(x) ? strdup(sky_j_str(x)) : NULL;
		if (!p[n++]) {
			free(p);
			return sky_fail(err, SKY_E_DATA, "a list of texts expected");
		}
	}
	if (!p) {
		return sky_fail_mem(err, "options");
	}
	l->v = p;
	l->n = n;
	return 0;
}

static int get(const struct runconf_row *r, const struct sky_jnode *v, struct sky_err *err)
{
	int64_t i;
	bool ok = true;

	switch (r->type) {
	case RUNCONF_TEXT:
		*(const char **)r->p = sky_j_str(v) ? strdup(sky_j_str(v)) : NULL;
		break;
	case RUNCONF_TEXTS:
		return get_texts(r->p, v, err);
	case RUNCONF_INT:
		ok = sky_j_i64(v, r->p);
		break;
	case RUNCONF_REAL:
		ok = sky_j_f64(v, r->p);
		break;
	case RUNCONF_FLAG:
		ok = sky_j_bool(v, r->p);
		break;
	default:
		ok = sky_j_i64(v, &i);
		*(int *)r->p = ok ? (int)i : 0;
		break;
	}
	return ok ? 0 : sky_fail(err, SKY_E_DATA, "%s: a value of another kind expected", r->name);
}

int runconf_load(const struct runconf_row *rows, const char *path, struct sky_err *err)
{
	struct sky_json *doc;
	int rc = sky_json_load(path, 0, &doc, err);

	if (rc < 0) {
		return rc;
	}
	for (; rows->name && rc == 0; rows++) {
		const struct sky_jnode *v = sky_j_get(sky_json_root(doc), rows->name);

		if (v && !opt_given(rows->name)) {
			rc = get(rows, v, err);
		}
	}
	sky_json_free(doc);
	return sky_while(err, rc, "%s", path);
}

int runconf_append(struct opt_list *l, int argc, char **argv, struct sky_err *err)
{
	const char **p;

	if (argc <= 0) {
		return 0;
	}
	p = sky_calloc_array((size_t)(l->n + argc), sizeof(*p));
	if (!p) {
		return sky_fail_mem(err, "options");
	}
	for (int64_t i = 0; i < l->n; i++) {
		p[i] = l->v[i];
	}
	for (int i = 0; i < argc; i++) {
		p[l->n + i] = argv[i];
	}
	l->v = p;
	l->n += argc;
	return 0;
}

int runconf_open_dir(struct sky_lock *lock, const char *resume, const char *mark, struct sky_err *err)
{
	const char *dir = resume ? resume : cmd.output;
	char path[SKY_MAX_PATH];
	int rc;

	if (!dir) {
		return sky_fail(err, SKY_E_USAGE, "-o RUN is required (or --resume RUN)");
	}
	if (resume && cmd.output && strcmp(resume, cmd.output)) {
		return sky_fail(err, SKY_E_USAGE, "--resume goes on in its own directory: leave -o out");
	}
	if (resume && !sky_is_dir(resume)) {
		return sky_fail(err, SKY_E_MISSING, "%s: no such run directory", resume);
	}
	rc = resume ? 0 : sky_mkdirs(dir, err);
	rc = rc < 0 ? rc : sky_lock_take(lock, dir, 0, err);
	rc = rc < 0 ? rc : sky_path_join(path, sizeof(path), dir, mark, err);
	if (rc == 0 && !resume && !cmd.force && sky_file_exists(path)) {
		rc = sky_fail(err, SKY_E_USAGE,
		              "%s holds a run already: --resume %s goes on with it, --force begins anew", dir, dir);
	}
	return rc;
}
