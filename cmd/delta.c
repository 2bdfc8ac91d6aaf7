/* skyrl-delta: versions of a model as small differences in a directory or an object store.
 *
 *	skyrl-delta publish --store s3://bucket/run --state pub --base base run/model       on the trainer
 *	skyrl-delta pull --store s3://bucket/run --state /var/lib/skyrl --base base         on every inference host, from cron
 */
#include "cmd/cmd.h"
#include "cmd/storeopt.h"
#include "base/base.h"
#include "delta/delta.h"

#include <stdlib.h>

static struct {
	const char *store, *state, *base, *weights;
	int64_t version;
	uint64_t max_file;
	double wait;
	bool allow_missing, allow_extra, fail_unchanged;
} o;

#define ROW_STORE OPT_TEXT(0, "store", &o.store, "URL", NULL, \
                           "where the chain lies: a directory, s3://bucket/path, gs://bucket/path", \
	                   .flags = OPT_REQUIRED)
#define ROW_STATE(help) OPT_DIR(0, "state", &o.state, "DIR", NULL, help, .flags = OPT_REQUIRED)
#define ROW_BASE OPT_DIR(0, "base", &o.base, "DIR", NULL, "the model that the chain began with: needed the first time")
#define ROW_WAIT OPT_TIME(0, "wait", &o.wait, "TIME", "0", "wait this long for another process that uses the state", .min = 0)
#define ROW_UNCHANGED OPT_FLAG(0, "fail-if-unchanged", &o.fail_unchanged, NULL, "status 6 when there was nothing to do")
#define ROW_VERSION(help) OPT_COUNT(0, "version", &o.version, "N", "0", help)

static const struct opt_row publish_rows[] = {
	OPT_HEAD("Chain"),
	ROW_STORE, ROW_STATE("what the last version held; kept by this command"), ROW_BASE,
	OPT_SIZE(0, "max-file-size", &o.max_file, "SIZE", "1GiB", "size of a payload file; a larger tensor lies alone"),
	OPT_FLAG(0, "allow-missing", &o.allow_missing, NULL, "a tensor that NEWDIR lacks counts as unchanged"),
	OPT_FLAG(0, "allow-extra", &o.allow_extra, NULL, "a tensor that the base lacks is passed over"),
	ROW_WAIT, OPT_TABLE(cmd_store_rows),
	CMD_OPT_THREADS, CMD_OPT_JSON,
	OPT_END
};

static const struct opt_row pull_rows[] = {
	OPT_HEAD("Chain"),
	ROW_STORE, ROW_STATE("holds weights/, always whole"), ROW_BASE,
	ROW_VERSION("version to reach; 0 is the newest"), ROW_UNCHANGED, ROW_WAIT, OPT_TABLE(cmd_store_rows),
	CMD_OPT_THREADS, CMD_OPT_JSON,
	OPT_END
};

static const struct opt_row apply_rows[] = {
	OPT_HEAD("Chain"),
	ROW_STATE("holds weights/ and what was fetched"), ROW_BASE,
	ROW_VERSION("version to reach; 0 is the newest that was fetched"), ROW_UNCHANGED, ROW_WAIT,
	CMD_OPT_THREADS, CMD_OPT_JSON,
	OPT_END
};

static const struct opt_row verify_rows[] = {
	OPT_HEAD("Chain"),
	ROW_STORE, OPT_DIR(0, "weights", &o.weights, "DIR", NULL, "a model directory that must hold the version"),
	ROW_VERSION("version that --weights must hold; 0 is the newest"), OPT_TABLE(cmd_store_rows), CMD_OPT_JSON,
	OPT_END
};

static const struct opt_row list_rows[] = {
	OPT_HEAD("Chain"),
	ROW_STORE, OPT_TABLE(cmd_store_rows), CMD_OPT_JSON,
	OPT_END
};

/* ---- shared ---- */

static int result(const char *op, const struct sky_delta_result *r, const struct sky_store *s, struct sky_err *err)
{
	struct sky_store_stats st = { 0 };
	struct sky_jw *w;

	if (!cmd.json) {
		return 0;
	}
	if (s) {
		sky_store_stats(s, &st);
	}
	w = cmd_rec("result", err);
	sky_jw_kbool(w, "ok", true);
	sky_jw_kstr(w, "op", op);
	sky_jw_ki64(w, "version", r->version);
	sky_jw_kbool(w, "unchanged", r->nothing);
	sky_jw_kstr(w, "run", r->id.run);
	sky_jw_kstr(w, "model", r->id.model);
	sky_jw_ki64(w, "tensors_changed", r->n_changed);
	sky_jw_ki64(w, "tensors_unchanged", r->n_unchanged);
	sky_jw_ki64(w, "tensors_missing", r->n_missing);
	sky_jw_ki64(w, "bytes_raw", (int64_t)r->raw_bytes);
	sky_jw_ki64(w, "bytes_changed", (int64_t)r->changed_bytes);
	sky_jw_ki64(w, "bytes_compressed", (int64_t)r->frame_bytes);
	sky_jw_ki64(w, "bytes_read", (int64_t)r->read_bytes);
	sky_jw_ki64(w, "bytes_put", (int64_t)st.bytes_put);
	sky_jw_ki64(w, "requests", (int64_t)st.n_request);
	sky_jw_ki64(w, "retries", (int64_t)st.n_retry);
	sky_jw_kf64(w, "diff_s", r->seconds_diff);
	sky_jw_kf64(w, "store_s", r->seconds_store);
	sky_jw_kf64(w, "apply_s", r->seconds_apply);
	sky_jw_kf64(w, "elapsed_s", cmd_since_start());
	return cmd_rec_end(err);
}

static int unchanged(const struct sky_delta_result *r, struct sky_err *err)
{
	if (r->nothing && o.fail_unchanged) {
		return sky_fail(err, SKY_E_UNCHANGED, "version %lld is held already", (long long)r->version);
	}
	return 0;
}

static char *size_text(uint64_t n)
{
	static char ring[4][32];
	static int i;

	i = (i + 1) % 4;
	return sky_fmt_size(ring[i], sizeof(ring[i]), n);
}

/* ---- commands ---- */

static int publish_run(int argc, char **argv, struct sky_err *err)
{
	struct sky_publish_opt po = { .state = o.state, .base = o.base, .max_file_bytes = o.max_file,
	                             .allow_missing = o.allow_missing,
	                              .allow_extra = o.allow_extra, .n_threads = (int)cmd.threads, .stop = cmd_stopping };
	struct sky_delta_result r = { 0 };
	struct sky_lock lock = SKY_LOCK_INIT;
	struct sky_store *s = NULL;
	int rc;

	if (argc != 1) {
		return sky_fail(err, SKY_E_USAGE, "one model directory expected: NEWDIR");
	}
	po.dir = argv[0];
	rc = sky_store_open(o.store, cmd_store_opt(), &s, err);
	rc = rc < 0 ? rc : sky_lock_take(&lock, o.state, o.wait, err);
	rc = rc < 0 ? rc : sky_delta_publish(s, &po, &r, err);
	if (rc == 0) {
		cmd_note("version %lld: %lld of %lld tensors changed, %s in %s", (long long)r.version, (long long)r.n_changed,
		         (long long)(r.n_changed + r.n_unchanged), size_text(r.raw_bytes), size_text(r.frame_bytes));
		if (r.n_extra || r.n_missing) {
			cmd_warn("%lld tensors passed over, %lld missing", (long long)r.n_extra, (long long)r.n_missing);
		}
		rc = result("publish", &r, s, err);
	}
	sky_store_close(s);
	sky_lock_drop(&lock);
	return rc;
}

static int receive(bool fetch, bool apply, struct sky_err *err)
{
	struct sky_receive_opt ro = { .state = o.state, .base = o.base, .version = o.version, .n_threads = (int)cmd.threads,
	                              .stop = cmd_stopping };
	struct sky_delta_result r = { 0 };
	struct sky_lock lock = SKY_LOCK_INIT;
	struct sky_store *s = NULL;
	int rc = fetch ? sky_store_open(o.store, cmd_store_opt(), &s, err) : 0;

	rc = rc < 0 ? rc : sky_lock_take(&lock, o.state, o.wait, err);
	rc = rc < 0 || !fetch ? rc : sky_delta_fetch(s, &ro, &r, err);
	rc = rc < 0 || !apply ? rc : sky_delta_apply(&ro, &r, err);
	if (rc == 0 && r.nothing) {
		cmd_verbose(1, "version %lld is held already", (long long)r.version);
	} else if (rc == 0) {
		cmd_note("version %lld%s", (long long)r.version, apply ? "" : " fetched");
	}
	rc = rc < 0 ? rc : result(fetch && apply ? "pull" : fetch ? "fetch" : "apply", &r, s, err);
	rc = rc < 0 ? rc : unchanged(&r, err);
	sky_store_close(s);
	sky_lock_drop(&lock);
	return rc;
}

static int pull_run(int argc, char **argv, struct sky_err *err)
{
	(void)argc;
	(void)argv;
	return receive(true, true, err);
}

static int fetch_run(int argc, char **argv, struct sky_err *err)
{
	(void)argc;
	(void)argv;
	return receive(true, false, err);
}

static int apply_run(int argc, char **argv, struct sky_err *err)
{
	(void)argc;
	(void)argv;
	return receive(false, true, err);
}

static int verify_run(int argc, char **argv, struct sky_err *err)
{
	struct sky_delta_result r = { 0 };
	struct sky_store *s = NULL;
	int rc = sky_store_open(o.store, cmd_store_opt(), &s, err);

	(void)argc;
	(void)argv;
	rc = rc < 0 ? rc : sky_delta_verify(s, o.weights, o.version, &r, err);
	if (rc == 0) {
		cmd_note("%s: the chain is whole%s%s%s", sky_store_url(s), o.weights ? ", " : "", o.weights ? o.weights : "",
		         o.weights ? " holds its version" : "");
		rc = result("verify", &r, s, err);
	}
	sky_store_close(s);
	return rc;
}

static int list_one(struct sky_store *s, int64_t v, struct sky_err *err)
{
	uint64_t raw = 0, frames = 0;
	struct sky_manifest m;
	struct sky_jw *w;
	int rc = sky_manifest_get(s, v, &m, err);

	if (rc < 0) {
		return rc;
	}
	for (int64_t i = 0; i < m.n_tensor; i++) {
		raw += m.tensor[i].raw_bytes;
		frames += m.tensor[i].frame_bytes;
	}
	if (cmd.json) {
		w = cmd_rec("version", err);
		sky_jw_ki64(w, "version", v);
		sky_jw_ki64(w, "tensors", m.n_tensor);
		sky_jw_ki64(w, "files", m.n_file);
		sky_jw_ki64(w, "bytes_raw", (int64_t)raw);
		sky_jw_ki64(w, "bytes_compressed", (int64_t)frames);
		sky_jw_kstr(w, "run", m.id.run);
		sky_jw_kstr(w, "model", m.id.model);
		rc = cmd_rec_end(err);
	} else {
		rc = cmd_outf(err, "%lld\t%lld tensors\t%s\t%s\t%.8s\n", (long long)v, (long long)m.n_tensor, size_text(raw),
		              size_text(frames), *m.id.model ? m.id.model : "-");
	}
	sky_manifest_release(&m);
	return rc;
}

static int list_run(int argc, char **argv, struct sky_err *err)
{
	struct sky_store *s = NULL;
	int64_t newest = 0;
	int rc = sky_store_open(o.store, cmd_store_opt(), &s, err);

	(void)argc;
	(void)argv;
	rc = rc < 0 ? rc : sky_delta_newest(s, &newest, err);
	if (rc == 0 && newest == 0) {
		rc = sky_fail(err, SKY_E_MISSING, "%s holds no version", o.store);
	}
	for (int64_t v = 1; v <= newest && rc == 0; v++) {
		rc = list_one(s, v, err);
	}
	sky_store_close(s);
	return rc;
}

#define SUB_FLAGS (CMD_STOP_SOFT | CMD_NO_SIGPIPE)
static const struct cmd_sub subs[] = {
	{ .name = "publish", .title = "write what changed since the last version",
	 .usage = "--store URL --state DIR [--base DIR] NEWDIR",
	  .example = "skyrl-delta publish --store s3://bucket/run --state pub --base base run/model", .rows = publish_rows,
	  .run = publish_run, .flags = SUB_FLAGS },
	{ .name = "pull", .title = "fetch and apply new versions", .usage = "--store URL --state DIR [--base DIR] [--version N]",
	  .example = "skyrl-delta pull --quiet --store s3://bucket/run --state /var/lib/skyrl --base base", .rows = pull_rows,
	  .run = pull_run, .flags = SUB_FLAGS | CMD_NO_OPERANDS },
	{ .name = "fetch", .title = "download new versions, change nothing", .usage = "--store URL --state DIR [--base DIR]",
	  .example = "skyrl-delta fetch --store s3://bucket/run --state /var/lib/skyrl", .rows = pull_rows, .run = fetch_run,
	  .flags = SUB_FLAGS | CMD_NO_OPERANDS },
	{ .name = "apply", .title = "apply what was fetched", .usage = "--state DIR [--version N]",
	  .example = "skyrl-delta apply --state /var/lib/skyrl", .rows = apply_rows, .run = apply_run,
	  .flags = SUB_FLAGS | CMD_NO_OPERANDS },
	{ .name = "verify", .title = "check a chain, and weights against it", .usage = "--store URL [--weights DIR]",
	  .example = "skyrl-delta verify --store s3://bucket/run --weights /var/lib/skyrl/weights", .rows = verify_rows,
	  .run = verify_run, .flags = SUB_FLAGS | CMD_NO_OPERANDS },
	{ .name = "list", .title = "versions of a chain, one a line", .usage = "[--json] --store URL",
	  .example = "skyrl-delta list --store s3://bucket/run", .rows = list_rows, .run = list_run,
	  .flags = SUB_FLAGS | CMD_NO_OPERANDS },
	{ .name = NULL }
};

static const struct opt_row rows[] = { OPT_END };

const struct cmd_prog cmd_prog = {
	.name = "skyrl-delta",
	.title = "publish and apply versions of a model as differences",
	.usage = "COMMAND [OPTION]…",
	.example = "skyrl-delta pull --store s3://bucket/run --state weights --base base",
	.rows = rows,
	.subs = subs,
	.flags = CMD_NEEDS_ARGS | CMD_STOP_SOFT | CMD_NO_SIGPIPE,
};
