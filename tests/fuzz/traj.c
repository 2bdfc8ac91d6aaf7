/* Fuzz target: trajectory files. Whatever is accepted can be read row by row and written again. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rollout/traj.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char path[64], copy[80];

static void clean(void)
{
	unlink(path);
	unlink(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sky_traj_row r;
	struct sky_traj t;
	struct sky_err err;
	int64_t i, n = 0;

	if (!path[0]) {
		snprintf(path, sizeof(path), "/tmp/skyrl-fuzz-%ld.traj", (long)getpid());
		snprintf(copy, sizeof(copy), "%s.copy", path);
		atexit(clean);
	}
	if (sky_file_publish(path, data, size, SKY_OUT_REPLACE | SKY_OUT_NO_FSYNC, &err) < 0) {
		abort();
	}
	if (sky_traj_open(path, NULL, &t, &err) < 0) {
		if (!err.msg[0] || t.own) {
			abort();
		}
		return 0;
	}
	for (i = 0; i < t.n_traj; i++) {
		sky_traj_row_at(&t, i, &r);
		n += r.n_tok;
		if (r.env && memchr(r.env, '\n', r.env_bytes)) {
			abort();
		}
	}
	if (n != t.n_tok || sky_traj_write(copy, &t, SKY_OUT_REPLACE | SKY_OUT_NO_FSYNC, &err) < 0) {
		abort();
	}
	sky_traj_close(&t);
	return 0;
}
