/* STATE: which version it holds, and the directory that holds it. */
#include "delta/delta_int.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* Inside the weights directory, so that one rename switches weights and number together. */
#define STATE_FILE ".skyrl-delta.json"

int dstate_path(char *out, const char *dir, const char *name, struct sky_err *err)
{
	return sky_path_join(out, SKY_MAX_PATH, dir, name, err);
}

void dstate_random_id(char out[33])
{
	uint8_t b[16];

	if (getrandom(b, sizeof(b), 0) != (ssize_t)sizeof(b)) {
		/* Early boot or an old kernel: time and process tell writers apart well enough. */
		uint64_t t = (uint64_t)(sky_wall() * 1e9), p = (uint64_t)getpid();

		memcpy(b, &t, 8);
		memcpy(b + 8, &p, 8);
	}
	sky_hex(b, sizeof(b), out);
}

int dstate_load(const char *dir, struct dstate *s, struct sky_err *err)
{
	struct sky_json *doc = NULL;
	char path[SKY_MAX_PATH];
	const struct sky_jnode *v;
	const char *text[4];
	char *to[4] = { s->id.run, s->id.writer, s->id.base, s->id.model };
	static const char *const keys[4] = { "run", "writer", "base", "model" };
	int rc = dstate_path(path, dir, STATE_FILE, err);

	if (rc == 0 && !sky_file_exists(path)) {
		return sky_fail(err, SKY_E_DATA, "%s is no directory that skyrl-delta keeps: it lacks %s", dir, STATE_FILE);
	}
	rc = rc < 0 ? rc : sky_json_load(path, 0, &doc, err);
	if (rc < 0) {
		return rc;
	}
	v = sky_json_root(doc);
	if (!sky_j_i64(sky_j_get(v, "version"), &s->version) || s->version < 0) {
		rc = sky_fail(err, SKY_E_DATA, "%s: no version", path);
	}
	for (int i = 0; i < 4 && rc == 0; i++) {
		rc = sky_j_get_str(v, keys[i], "", &text[i], err);
		if (rc == 0) {
			snprintf(to[i], 33, "%s", text[i]);
		}
	}
	sky_json_free(doc);
	return rc;
}

int dstate_save(const char *dir, const struct dstate *s, struct sky_err *err)
{
	char path[SKY_MAX_PATH], text[512];
	int rc = dstate_path(path, dir, STATE_FILE, err);

	snprintf(text, sizeof(text), "{\"version\":%lld,\"run\":\"%s\",\"writer\":\"%s\",\"base\":\"%s\",\"model\":\"%s\"}\n",
	         (long long)s->version, s->id.run, s->id.writer, s->id.base, s->id.model);
	return rc < 0 ? rc : sky_file_publish(path, text, strlen(text), SKY_OUT_REPLACE, err);
}

static int copy_bytes(int in, int out, const char *from, const char *to, struct sky_err *err)
{
	char *buf;
	int64_t n = 0;
	int rc = 0;

	if (ioctl(out, FICLONE, in) == 0) {
		return 0;
	}
	buf = malloc(1u << 20);
	if (!buf) {
		return sky_fail_mem(err, "copying %s", from);
	}
	while (rc == 0 && (n = sky_read_full(in, buf, 1u << 20, from, err)) > 0) {
		rc = sky_write_full(out, buf, (size_t)n, to, err);
	}
	free(buf);
	return n < 0 ? (int)n : rc;
}

int dstate_copy_file(const char *from, const char *to, struct sky_err *err)
{
	int in = open(from, O_RDONLY | O_CLOEXEC), out, rc;

	if (in < 0) {
		return sky_fail_sys(err, "%s", from);
	}
	out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (out < 0) {
		rc = sky_fail_sys(err, "%s", to);
		close(in);
		return rc;
	}
	rc = copy_bytes(in, out, from, to, err);
	if (rc == 0 && fsync(out) < 0) {
		rc = sky_fail_sys(err, "fsync of %s", to);
	}
	if (close(out) < 0 && rc == 0) {
		rc = sky_fail_sys(err, "closing %s", to);
	}
	close(in);
	return rc;
}

int dstate_copy_dir(const char *from, const char *to, int link_files, struct sky_err *err)
{
	char a[SKY_MAX_PATH], b[SKY_MAX_PATH], **names = NULL;
	struct stat st;
	size_t n = 0;
	int rc = sky_remove_tree(to, err);

	rc = rc < 0 ? rc : sky_mkdirs(to, err);
	rc = rc < 0 ? rc : sky_list_dir(from, &names, &n, err);
	for (size_t i = 0; i < n && rc == 0; i++) {
		rc = dstate_path(a, from, names[i], err);
		rc = rc < 0 ? rc : dstate_path(b, to, names[i], err);
		if (rc < 0 || stat(a, &st) < 0 || !S_ISREG(st.st_mode)) {
			continue;
		}
		/* A link into a cache is followed; another file system cannot be linked into. */
		if (!link_files || linkat(AT_FDCWD, a, AT_FDCWD, b, AT_SYMLINK_FOLLOW) < 0) {
			rc = dstate_copy_file(a, b, err);
		}
	}
	sky_names_free(names, n);
	return rc < 0 ? rc : sky_fsync_dir(to, err);
}

int dstate_switch(const char *dir, const char *fresh, struct sky_err *err)
{
	char weights[SKY_MAX_PATH], old[SKY_MAX_PATH];
	int rc = dstate_path(weights, dir, "weights", err);

	rc = rc < 0 ? rc : dstate_path(old, dir, ".weights.old", err);
	rc = rc < 0 ? rc : sky_remove_tree(old, err);
	if (rc < 0) {
		return rc;
	}
	if (!sky_is_dir(weights)) {
		if (rename(fresh, weights) < 0) {
			return sky_fail_sys(err, "renaming %s to %s", fresh, weights);
		}
	} else if (renameat2(AT_FDCWD, fresh, AT_FDCWD, weights, RENAME_EXCHANGE) == 0) {
		/* The old directory lies under the fresh name now. */
		rc = sky_fsync_dir(dir, err);
		return rc < 0 ? rc : sky_remove_tree(fresh, err);
	} else {
		/* A file system without exchange: two renames, and a start that finds .weights.old only puts it back. */
		if (rename(weights, old) < 0 || rename(fresh, weights) < 0) {
			return sky_fail_sys(err, "renaming %s to %s", fresh, weights);
		}
	}
	rc = sky_fsync_dir(dir, err);
	return rc < 0 ? rc : sky_remove_tree(old, err);
}


int sky_model_hash(const struct sky_hf *hf, char out[33], struct sky_err *err)
{
	struct sky_xxh_state *s = sky_xxh_new();
	char line[1400], hex[33];

	if (!s) {
		return sky_fail_mem(err, "hash");
	}
	for (int64_t i = 0; i < sky_hf_count(hf); i++) {
		const struct sky_tensor *t = sky_hf_at(hf, i);
		int n = snprintf(line, sizeof(line), "%s\t%s\t", t->name, sky_dtype_name(t->dtype));

		for (int d = 0; d < t->n_dim && n < (int)sizeof(line); d++) {
			n += snprintf(line + n, sizeof(line) - (size_t)n, d ? ",%lld" : "%lld", (long long)t->shape[d]);
		}
		if (n >= (int)sizeof(line)) {
			sky_xxh_free(s);
			return sky_fail(err, SKY_E_LIMIT, "tensor name of %zu bytes", strlen(t->name));
		}
		sky_h128_hex(sky_xxh128(t->data, t->bytes), hex);
		sky_xxh_update(s, line, (size_t)n);
		sky_xxh_update(s, "\t", 1);
		sky_xxh_update(s, hex, 32);
		sky_xxh_update(s, "\n", 1);
	}
	sky_h128_hex(sky_xxh_digest(s), out);
	sky_xxh_free(s);
	return 0;
}
