/* Environment children: queues of calls out, lines of replies in, deadlines, restarts. */
#include "rollout/env.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

enum call { CALL_NONE, CALL_INIT, CALL_STEP };

struct episode {
	int64_t id;
	int worker;
	enum call call;         /* what it waits for */
	double deadline;
	struct episode *next;   /* hash chain */
};

struct worker {
	struct sky_proc proc;   /* pid 0: not running */
	struct sky_buf out;     /* calls not yet written */
	size_t out_pos;
	struct sky_buf in;      /* bytes read */
	size_t in_pos, in_scan;
	int64_t n_live;         /* episodes that belong to this child */
	bool eof;
};

#define N_BUCKET 1024

struct sky_envs {
	char *cmd, *name;
	int n_worker, next;
	double timeout_s;
	size_t max_line;
	struct worker *w;
	struct episode *bucket[N_BUCKET];
	int64_t n_out;          /* calls without an answer */
	bool answered;          /* some child has answered once: the command works */
	struct sky_json *doc;   /* of the last reply */
	/* a child that failed: its episodes are reported one by one */
	int lost_worker;        /* −1: none */
	char lost_why[512];
};

static struct episode **slot(struct sky_envs *e, int64_t id)
{
	struct episode **p = &e->bucket[(uint64_t)id % N_BUCKET];

	while (*p && (*p)->id != id) {
		p = &(*p)->next;
	}
	return p;
}

static void forget(struct sky_envs *e, struct episode **p)
{
	struct episode *ep = *p;

	e->n_out -= ep->call != CALL_NONE;
	e->w[ep->worker].n_live--;
	*p = ep->next;
	free(ep);
}

int sky_envs_start(const struct sky_env_opt *opt, struct sky_envs **e_p, struct sky_err *err)
{
	struct sky_envs *e = sky_calloc_array(1, sizeof(*e));

	if (!e) {
		return sky_fail_mem(err, "environment");
	}
	e->n_worker = opt->n_worker > 0 ? opt->n_worker : 1;
	e->timeout_s = opt->timeout_s > 0 ? opt->timeout_s : 30;
	e->max_line = opt->max_line ? opt->max_line : 16u << 20;
	e->lost_worker = -1;
	e->cmd = strdup(opt->cmd);
	e->name = strdup(opt->name ? opt->name : opt->cmd);
	e->w = sky_calloc_array((size_t)e->n_worker, sizeof(*e->w));
	if (!e->cmd || !e->name || !e->w) {
		sky_envs_stop(e);
		return sky_fail_mem(err, "environment");
	}
	for (int i = 0; i < e->n_worker; i++) {
		sky_buf_init(&e->w[i].out, SKY_MAX_LINE_BYTES);
		sky_buf_init(&e->w[i].in, e->max_line);
	}
	*e_p = e;
	return 0;
}

void sky_envs_stop(struct sky_envs *e)
{
	if (!e) {
		return;
	}
	for (int i = 0; e->w && i < e->n_worker; i++) {
		if (e->w[i].proc.pid) {
			int status;

			/* A child ends by itself when its input ends; one that does not is killed. */
			sky_proc_close_in(&e->w[i].proc);
			if (sky_proc_wait(&e->w[i].proc, 0.5, &status, NULL) < 0) {
				sky_proc_kill(&e->w[i].proc, 0.5);
			}
			if (e->w[i].proc.out >= 0) {
				close(e->w[i].proc.out);
			}
			free(e->w[i].proc.name);
		}
		sky_buf_release(&e->w[i].out);
		sky_buf_release(&e->w[i].in);
	}
	for (int b = 0; b < N_BUCKET; b++) {
		while (e->bucket[b]) {
			struct episode *ep = e->bucket[b];

			e->bucket[b] = ep->next;
			free(ep);
		}
	}
	sky_json_free(e->doc);
	free(e->w);
	free(e->cmd);
	free(e->name);
	free(e);
}

int64_t sky_envs_outstanding(const struct sky_envs *e)
{
	return e->n_out;
}

static int start_worker(struct sky_envs *e, struct worker *w, struct sky_err *err)
{
	int rc;

	if (w->proc.pid) {
		return 0;
	}
	sky_buf_clear(&w->out);
	sky_buf_clear(&w->in);
	w->out_pos = w->in_pos = w->in_scan = 0;
	w->eof = false;
	rc = sky_proc_shell(&w->proc, e->cmd, SKY_PROC_STDIN | SKY_PROC_STDOUT, err);
	if (rc < 0) {
		return sky_while(err, rc, "environment %s", e->name);
	}
	if (fcntl(w->proc.in, F_SETFL, O_NONBLOCK) < 0 || fcntl(w->proc.out, F_SETFL, O_NONBLOCK) < 0) {
		return sky_fail_sys(err, "environment %s: pipe", e->name);
	}
	return 0;
}

/* One call as a line: text holds the members between "id" and the closing brace. */
static int send_line(struct worker *w, const char *op, int64_t id, const char *key, const char *value, size_t n, bool quote,
                     struct sky_err *err)
{
	struct sky_jw j;
	int rc;

	if (w->out_pos > 0 && w->out_pos == w->out.n) {
		sky_buf_clear(&w->out);
		w->out_pos = 0;
	}
	sky_jw_init(&j, &w->out, err);
	sky_jw_obj(&j);
	sky_jw_kstr(&j, "op", op);
	sky_jw_ki64(&j, "id", id);
	if (key) {
		sky_jw_key(&j, key);
		if (quote) {
			sky_jw_strn(&j, value, n);
		} else {
			sky_jw_raw(&j, value, n);
		}
	}
	sky_jw_close_obj(&j);
	rc = sky_jw_end(&j);
	return rc < 0 ? rc : sky_buf_addc(&w->out, '\n', err);
}

int sky_env_init(struct sky_envs *e, int64_t id, const char *row, size_t n_row, struct sky_err *err)
{
	struct episode **p = slot(e, id), *ep;
	int rc;

	if (*p) {
		return sky_fail(err, SKY_E_USAGE, "environment %s: episode %lld is open already", e->name, (long long)id);
	}
	ep = sky_calloc_array(1, sizeof(*ep));
	if (!ep) {
		return sky_fail_mem(err, "episode");
	}
	ep->id = id;
	ep->worker = e->next;
	rc = start_worker(e, &e->w[ep->worker], err);
	if (rc == 0) {
		rc = send_line(&e->w[ep->worker], "init", id, "row", row, n_row, false, err);
	}
	if (rc < 0) {
		free(ep);
		return rc;
	}
	e->next = (e->next + 1) % e->n_worker;
	ep->call = CALL_INIT;
	ep->deadline = sky_now() + e->timeout_s;
	*p = ep;
	e->w[ep->worker].n_live++;
	e->n_out++;
	return 0;
}

int sky_env_step(struct sky_envs *e, int64_t id, const char *action, size_t n, struct sky_err *err)
{
	struct episode *ep = *slot(e, id);
	int rc;

	if (!ep || ep->call != CALL_NONE) {
		return sky_fail(err, SKY_E_USAGE, "environment %s: episode %lld is not waiting for an action", e->name,
		                (long long)id);
	}
	rc = send_line(&e->w[ep->worker], "step", id, "action", action, n, true, err);
	if (rc < 0) {
		return rc;
	}
	ep->call = CALL_STEP;
	ep->deadline = sky_now() + e->timeout_s;
	e->n_out++;
	return 0;
}

int sky_env_close(struct sky_envs *e, int64_t id, struct sky_err *err)
{
	struct episode **p = slot(e, id);
	int rc = 0;

	if (*p) {
		if (e->w[(*p)->worker].proc.pid) {
			rc = send_line(&e->w[(*p)->worker], "close", id, NULL, NULL, 0, false, err);
		}
		forget(e, p);
	}
	return rc;
}

/* Kills the child and marks its episodes as lost, to be reported one a poll. */
static int fail_worker(struct sky_envs *e, int i, const char *why, struct sky_err *err)
{
	struct worker *w = &e->w[i];
	char state[128] = "";
	int status = 0;

	if (w->eof && sky_proc_wait(&w->proc, 1, &status, NULL) == 0) {
		sky_proc_status_text(status, state, sizeof(state));
	} else {
		sky_proc_kill(&w->proc, 0.2);
	}
	sky_proc_close_in(&w->proc);
	if (w->proc.out >= 0) {
		close(w->proc.out);
	}
	free(w->proc.name);
	w->proc = (struct sky_proc){ .pid = 0, .in = -1, .out = -1 };
	if (!e->answered) {
		return sky_fail(err, SKY_E_SYS, "environment %s %s before it answered once; its command was: %s", e->name,
		                *state ? state : why, e->cmd);
	}
	if (w->n_live > 0) {
		e->lost_worker = i;
		snprintf(e->lost_why, sizeof(e->lost_why), "environment %s %s", e->name, *state ? state : why);
	}
	return 0;
}

/* The next episode of the child that failed; false when all were told. */
static bool next_lost(struct sky_envs *e, struct sky_env_reply *r)
{
	for (int b = 0; b < N_BUCKET; b++) {
		for (struct episode **p = &e->bucket[b]; *p; p = &(*p)->next) {
			if ((*p)->worker == e->lost_worker) {
				r->event = SKY_ENV_LOST;
				r->id = (*p)->id;
				r->doc = NULL;
				snprintf(r->why, sizeof(r->why), "%s", e->lost_why);
				forget(e, p);
				return true;
			}
		}
	}
	e->lost_worker = -1;
	return false;
}

/* Understands one line. 1: *r is an event, 0: the line is nothing to us, −1: no reply at all. */
static int read_reply(struct sky_envs *e, const char *line, size_t n, struct sky_env_reply *r)
{
	const struct sky_jnode *root, *msg;
	struct sky_err err;
	struct episode **p;
	double reward;
	bool done;

	sky_json_free(e->doc);
	e->doc = NULL;
	if (sky_json_parse(line, n, e->name, SKY_JSON_PYTHON, &e->doc, &err) < 0 ||
	    !sky_j_i64(sky_j_get(sky_json_root(e->doc), "id"), &r->id)) {
		return -1;
	}
	root = sky_json_root(e->doc);
	p = slot(e, r->id);
	if (!*p || (*p)->call == CALL_NONE) {
		return 0;       /* closed in the meantime, or an answer to close */
	}
	e->answered = true;
	r->doc = root;
	r->event = (*p)->call == CALL_INIT ? SKY_ENV_PROMPT : SKY_ENV_STEP;
	(*p)->call = CALL_NONE;
	e->n_out--;
	msg = sky_j_get(root, "error");
	if (msg) {
		snprintf(r->why, sizeof(r->why), "environment %s: %s", e->name, sky_j_str(msg) ? sky_j_str(msg) : "error");
	} else if (r->event == SKY_ENV_PROMPT && sky_j_type(sky_j_get(root, "prompt")) != SKY_J_ARRAY) {
		snprintf(r->why, sizeof(r->why), "environment %s: its answer to init has no array \"prompt\"", e->name);
	} else if (r->event == SKY_ENV_STEP &&
	           (!sky_j_f64(sky_j_get(root, "reward"), &reward) || !sky_j_bool(sky_j_get(root, "done"), &done))) {
		snprintf(r->why, sizeof(r->why), "environment %s: its answer to step lacks a number \"reward\" or a boolean "
		         "\"done\"", e->name);
	} else {
		return 1;
	}
	r->event = SKY_ENV_LOST;
	r->doc = NULL;
	forget(e, p);
	return 1;
}

/* A whole line of w, if one is there. */
static bool take_line(struct worker *w, const char **line, size_t *n)
{
	char *nl = w->in.n > w->in_scan ? memchr(w->in.ptr + w->in_scan, '\n', w->in.n - w->in_scan) : NULL;

	w->in_scan = w->in.n;
	if (!nl) {
		if (w->in_pos > 0) {
			memmove(w->in.ptr, w->in.ptr + w->in_pos, w->in.n - w->in_pos);
			w->in.n -= w->in_pos;
			w->in_pos = 0;
			w->in_scan = w->in.n;
		}
		return false;
	}
	*line = w->in.ptr + w->in_pos;
	*n = (size_t)(nl - *line);
	w->in_pos += *n + 1;
	w->in_scan = w->in_pos;
	return true;
}

/* Moves bytes both ways without blocking. Returns a complaint or NULL. */
static const char *pump(struct worker *w, short events)
{
	struct sky_err err;
	ssize_t k;

	if ((events & (POLLOUT | POLLERR)) && w->out.n > w->out_pos) {
		k = write(w->proc.in, w->out.ptr + w->out_pos, w->out.n - w->out_pos);
		if (k > 0) {
			w->out_pos += (size_t)k;
		} else if (k < 0 && errno != EAGAIN && errno != EINTR) {
			w->eof = true;
			return "closed its input";
		}
	}
	if (events & (POLLIN | POLLHUP)) {
		if (sky_buf_reserve(&w->in, 65536, &err) < 0) {
			return "printed a line that is too long";
		}
		k = read(w->proc.out, w->in.ptr + w->in.n, 65536);
		if (k > 0) {
			w->in.n += (size_t)k;
		} else if (k == 0) {
			w->eof = true;
			return "ended";
		}
	}
	return NULL;
}

/* Earliest deadline among outstanding calls; *late_p a worker beyond its own, −1 none. */
static double next_deadline(struct sky_envs *e, double now, int *late_p)
{
	double first = 1e300;

	*late_p = -1;
	for (int b = 0; b < N_BUCKET; b++) {
		for (struct episode *ep = e->bucket[b]; ep; ep = ep->next) {
			if (ep->call != CALL_NONE) {
				first = ep->deadline < first ? ep->deadline : first;
				*late_p = ep->deadline <= now ? ep->worker : *late_p;
			}
		}
	}
	return first;
}

static int scan_lines(struct sky_envs *e, struct sky_env_reply *r, struct sky_err *err)
{
	for (int i = 0; i < e->n_worker; i++) {
		const char *line;
		size_t n;

		while (take_line(&e->w[i], &line, &n)) {
			char shown[64];
			int k = read_reply(e, line, n, r);

			if (k > 0) {
				return 1;
			}
			if (k < 0) {
				char why[128];

				snprintf(shown, sizeof(shown), "%.*s", (int)(n < 40 ? n : 40), line);
				snprintf(why, sizeof(why), "printed a line that is no reply: %s", shown);
				return fail_worker(e, i, why, err);
			}
		}
	}
	return 0;
}

/* Waits for traffic until `until`; moves bytes. */
static int wait_and_pump(struct sky_envs *e, double until, struct sky_err *err)
{
	struct pollfd fds[2 * SKY_MAX_THREADS];
	int owner[2 * SKY_MAX_THREADS], n = 0;
	double wait = until - sky_now();

	for (int i = 0; i < e->n_worker && n + 2 <= 2 * SKY_MAX_THREADS; i++) {
		struct worker *w = &e->w[i];

		if (!w->proc.pid) {
			continue;
		}
		fds[n] = (struct pollfd){ .fd = w->proc.out, .events = POLLIN };
		owner[n++] = i;
		if (w->out.n > w->out_pos) {
			fds[n] = (struct pollfd){ .fd = w->proc.in, .events = POLLOUT };
			owner[n++] = i;
		}
	}
	if (n == 0) {
		return 0;
	}
	if (poll(fds, (nfds_t)n, wait <= 0 ? 0 : wait > 60 ? 60000 : (int)(wait * 1000) + 1) < 0 && errno != EINTR) {
		return sky_fail_sys(err, "environment %s: poll", e->name);
	}
	for (int i = 0; i < n; i++) {
		const char *why = fds[i].revents && e->w[owner[i]].proc.pid ? pump(&e->w[owner[i]], fds[i].revents) : NULL;

		/* Whole lines that came before the end still count. */
		if (why && !(e->w[owner[i]].in.n > e->w[owner[i]].in_pos &&
		             memchr(e->w[owner[i]].in.ptr + e->w[owner[i]].in_pos, '\n',
		                    e->w[owner[i]].in.n - e->w[owner[i]].in_pos))) {
			return fail_worker(e, owner[i], why, err);
		}
	}
	return 0;
}

int sky_env_poll(struct sky_envs *e, double wait_s, struct sky_env_reply *r, struct sky_err *err)
{
	double until = sky_now() + wait_s;

	for (;;) {
		double now = sky_now(), first;
		int late, rc;

		if (e->lost_worker >= 0 && next_lost(e, r)) {
			return 0;
		}
		rc = scan_lines(e, r, err);
		if (rc != 0) {
			return rc < 0 ? rc : 0;
		}
		if (e->lost_worker >= 0) {
			continue;
		}
		first = next_deadline(e, now, &late);
		if (late >= 0) {
			char why[96];

			snprintf(why, sizeof(why), "did not answer within %g s (--env-timeout)", e->timeout_s);
			rc = fail_worker(e, late, why, err);
		} else {
			rc = wait_and_pump(e, first < until ? first : until, err);
		}
		if (rc < 0) {
			return rc;
		}
		if (e->lost_worker < 0 && sky_now() >= until) {
			rc = scan_lines(e, r, err);
			if (rc != 0 || e->lost_worker < 0) {
				return rc < 0 ? rc : rc > 0 ? 0 : SKY_EOF;
			}
		}
	}
}
