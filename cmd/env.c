/* skyrl-env: built-in environments behind the protocol of skyrl-env(7), one NDJSON call a line on stdin, one answer a line on
 * stdout.
 *
 *	printf '%s\n' '{"op":"init","id":1,"row":{"prompt":"1+1?","reward_spec":{"ground_truth":"2"}}}' \
 *		'{"op":"step","id":1,"action":"#### 2"}' | skyrl-env gsm8k
 */
#include "cmd/cmd.h"
#include "base/base.h"
#include "rollout/builtin.h"

#include <stdlib.h>
#include <unistd.h>

static bool list;

static const struct opt_row rows[] = {
	OPT_FLAG(0, "list", &list, NULL, "print the names of the environments, one a line"),
	OPT_END
};

/* Open episodes by id: chains of a small hash table. */
struct slot {
	int64_t id;
	struct sky_episode ep;
	struct slot *next;
};

#define N_BUCKET 4096
static struct slot *bucket[N_BUCKET];

static struct slot **find(int64_t id)
{
	struct slot **p = &bucket[(uint64_t)id % N_BUCKET];

	while (*p && (*p)->id != id) {
		p = &(*p)->next;
	}
	return p;
}

static void drop(struct slot **p)
{
	struct slot *s = *p;

	if (s) {
		*p = s->next;
		sky_episode_release(&s->ep);
		free(s);
	}
}

static int write_line(struct sky_buf *line, struct sky_err *err)
{
	int rc = sky_buf_addc(line, '\n', err);

	rc = rc < 0 ? rc : cmd_out(line->ptr, line->n, err);
	return rc < 0 ? rc : cmd_out_flush(err);
}

/* {"id":…,"error":"…"}: the call failed, the program goes on. */
static int answer_error(int64_t id, const char *what, struct sky_buf *line, struct sky_err *err)
{
	struct sky_jw w;
	int rc;

	sky_buf_clear(line);
	sky_jw_init(&w, line, err);
	sky_jw_obj(&w);
	sky_jw_ki64(&w, "id", id);
	sky_jw_kstr(&w, "error", what);
	sky_jw_close_obj(&w);
	rc = sky_jw_end(&w);
	return rc < 0 ? rc : write_line(line, err);
}

/* "prompt" of the row: its messages, or a text that becomes one user message. */
static int answer_prompt(int64_t id, const struct sky_jnode *row, struct sky_buf *line, struct sky_err *err)
{
	const struct sky_jnode *p = sky_j_get(row, "prompt");
	struct sky_buf text = SKY_BUF_INIT(SKY_MAX_LINE_BYTES);
	struct sky_jw w;
	int rc = 0;

	if (sky_j_type(p) == SKY_J_ARRAY) {
		rc = sky_j_print(p, &text, err);
	} else if (!sky_j_str(p)) {
		return answer_error(id, "the row has no \"prompt\" (messages, or a text)", line, err);
	}
	sky_buf_clear(line);
	sky_jw_init(&w, line, err);
	sky_jw_obj(&w);
	sky_jw_ki64(&w, "id", id);
	sky_jw_key(&w, "prompt");
	if (sky_j_str(p)) {
		sky_jw_arr(&w);
		sky_jw_obj(&w);
		sky_jw_kstr(&w, "role", "user");
		sky_jw_kstr(&w, "content", sky_j_str(p));
		sky_jw_close_obj(&w);
		sky_jw_close_arr(&w);
	} else {
		sky_jw_raw(&w, text.ptr, text.n);
	}
	sky_jw_close_obj(&w);
	rc = rc < 0 ? rc : sky_jw_end(&w);
	sky_buf_release(&text);
	return rc < 0 ? rc : write_line(line, err);
}

static int answer_step(int64_t id, const struct sky_env_result *r, struct sky_buf *line, struct sky_err *err)
{
	struct sky_jw w;
	int rc;

	sky_buf_clear(line);
	sky_jw_init(&w, line, err);
	sky_jw_obj(&w);
	sky_jw_ki64(&w, "id", id);
	sky_jw_key(&w, "obs");
	sky_jw_raw(&w, r->obs.n ? r->obs.ptr : "[]", r->obs.n ? r->obs.n : 2);
	sky_jw_kf64(&w, "reward", r->reward);
	sky_jw_kbool(&w, "done", r->done);
	sky_jw_key(&w, "info");
	sky_jw_raw(&w, r->info.n ? r->info.ptr : "{}", r->info.n ? r->info.n : 2);
	sky_jw_close_obj(&w);
	rc = sky_jw_end(&w);
	return rc < 0 ? rc : write_line(line, err);
}

static int do_init(const struct sky_env_kind *k, int64_t id, const struct sky_jnode *row, struct sky_buf *line,
                   struct sky_err *err)
{
	struct slot **p = find(id), *s;
	struct sky_err why;

	drop(p);        /* a restart of the caller's numbering */
	s = calloc(1, sizeof(*s));
	if (!s) {
		return sky_fail_mem(err, "episode");
	}
	s->id = id;
	if (sky_episode_init(k, &s->ep, row, &why) < 0) {
		free(s);
		return answer_error(id, why.msg, line, err);
	}
	s->next = *p;
	*p = s;
	return answer_prompt(id, row, line, err);
}

static int do_step(const struct sky_env_kind *k, int64_t id, const char *action, struct sky_env_result *r,
                   struct sky_buf *line, struct sky_err *err)
{
	struct slot **p = find(id);
	int rc;

	if (!*p || !action) {
		return answer_error(id, *p ? "step without a text \"action\"" : "no such episode", line, err);
	}
	r->reward = 0;
	r->done = 0;
	sky_buf_clear(&r->obs);
	sky_buf_clear(&r->info);
	rc = k->step(&(*p)->ep, action, strlen(action), r, err);
	if (rc < 0) {
		return rc;
	}
	if (r->done) {
		drop(p);
	}
	return answer_step(id, r, line, err);
}

/* A policy may sample a NUL byte, which no text here can hold: its escape becomes that of U+FFFD, of equal length. */
static void replace_nul(char *line, size_t n)
{
	for (size_t i = 0; i + 6 <= n; i++) {
		if (line[i] == '\\' && line[i + 1] == 'u' && !memcmp(line + i + 2, "0000", 4)) {
			memcpy(line + i + 2, "fffd", 4);
		}
		i += line[i] == '\\';    /* the escaped character is not the begin of another escape */
	}
}

static int serve(const struct sky_env_kind *k, struct sky_err *err)
{
	struct sky_env_result r = { .obs = SKY_BUF_INIT(SKY_MAX_LINE_BYTES), .info = SKY_BUF_INIT(SKY_MAX_LINE_BYTES) };
	struct sky_buf line = SKY_BUF_INIT(SKY_MAX_LINE_BYTES), copy = SKY_BUF_INIT(SKY_MAX_LINE_BYTES);
	struct sky_lines in;
	const char *text;
	size_t n;
	int rc;

	sky_lines_init(&in, STDIN_FILENO, "standard input", SKY_MAX_LINE_BYTES);
	while ((rc = sky_lines_next(&in, -1, &text, &n, err)) == 0) {
		struct sky_json *doc;
		const struct sky_jnode *v;
		const char *op;
		int64_t id;

		sky_buf_clear(&copy);
		rc = sky_buf_add(&copy, text, n, err);
		if (rc == 0) {
			replace_nul(copy.ptr, copy.n);
			rc = sky_json_parse(copy.ptr ? copy.ptr : "", copy.n, "standard input", SKY_JSON_PYTHON, &doc, err);
		}
		if (rc < 0) {
			sky_while(err, rc, "line %lld", (long long)in.n_line);
			break;
		}
		v = sky_json_root(doc);
		op = sky_j_str(sky_j_get(v, "op"));
		if (!op || !sky_j_i64(sky_j_get(v, "id"), &id)) {
			rc = sky_fail(err, SKY_E_DATA, "standard input: line %lld: a call needs \"op\" and an integer \"id\"",
			              (long long)in.n_line);
		} else if (!strcmp(op, "init")) {
			rc = do_init(k, id, sky_j_get(v, "row"), &line, err);
		} else if (!strcmp(op, "step")) {
			rc = do_step(k, id, sky_j_str(sky_j_get(v, "action")), &r, &line, err);
		} else if (!strcmp(op, "close")) {
			drop(find(id));
		} else {
			rc = answer_error(id, "unknown op (init, step, close)", &line, err);
		}
		sky_json_free(doc);
		if (rc < 0) {
			break;
		}
	}
	sky_lines_release(&in);
	sky_buf_release(&line);
	sky_buf_release(&copy);
	sky_buf_release(&r.obs);
	sky_buf_release(&r.info);
	for (int b = 0; b < N_BUCKET; b++) {
		while (bucket[b]) {
			drop(&bucket[b]);
		}
	}
	return rc == SKY_EOF ? 0 : rc;
}

static int env_run(int argc, char **argv, struct sky_err *err)
{
	const struct sky_env_kind *k;

	if (list) {
		for (int i = 0; (k = sky_env_kind_at(i)); i++) {
			int rc = cmd_outf(err, "%s\t%s\n", k->name, k->summary);

			if (rc < 0) {
				return rc;
			}
		}
		return 0;
	}
	if (argc != 1) {
		return sky_fail(err, SKY_E_USAGE, "one environment expected (--list names them)");
	}
	k = sky_env_kind_find(argv[0]);
	if (!k) {
		return sky_fail(err, SKY_E_USAGE, "environment %s is not known (--list names them)", argv[0]);
	}
	return serve(k, err);
}

const struct cmd_prog cmd_prog = {
	.name = "skyrl-env",
	.title = "serve a built-in environment",
	.usage = "[OPTION]… NAME",
	.example = "skyrl-env --list",
	.rows = rows,
	.run = env_run,
	.flags = CMD_NEEDS_ARGS,
};
