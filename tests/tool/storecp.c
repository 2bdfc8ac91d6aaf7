/* Copies files to and from a store; for benchmarks and for tests that look into a bucket.
 *
 *	storecp [--endpoint-url URL] [--parallel N] [--part-size BYTES] [--bwlimit BYTES] [-j N] put STORE FILE…         keys are the
 *files' base names storecp … get STORE FOLDER KEY…                 (-: all keys below the store) storecp … list STORE
 *
 * -j: objects at once. Exit status as the programs'. */
#include <fcntl.h>
#include <unistd.h>
#include "store/store.h"

struct job {
	struct sky_store *s;
	const char *folder;
	char **names;
	struct sky_err err;
	_Atomic int rc;
};

static void put_one(void *ctx, int64_t i, int worker)
{
	struct job *j = ctx;
	const char *slash = strrchr(j->names[i], '/');
	struct sky_err err;
	int rc = j->rc < 0 ? j->rc : sky_store_put_file(j->s, slash ? slash + 1 : j->names[i], j->names[i], 0, &err);

	(void)worker;
	if (rc < 0 && j->rc == 0) {
		j->rc = rc;
		j->err = err;
	}
}

static int get_file(struct job *j, const char *key, struct sky_err *err)
{
	char path[4096];
	uint64_t n;
	int fd, rc;

	snprintf(path, sizeof(path), "%s/%s", j->folder, key);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (fd < 0) {
		return sky_fail_sys(err, "%s", path);
	}
	rc = sky_store_get_fd(j->s, key, fd, &n, err);
	close(fd);
	return rc;
}

static void get_one(void *ctx, int64_t i, int worker)
{
	struct job *j = ctx;
	struct sky_err err;
	int rc = j->rc < 0 ? j->rc : get_file(j, j->names[i], &err);

	(void)worker;
	if (rc < 0 && j->rc == 0) {
		j->rc = rc;
		j->err = err;
	}
}

static int run(struct job *j, int64_t n, int threads, void (*fn)(void *, int64_t, int), struct sky_err *err)
{
	struct sky_pool *pool;
	int rc = sky_pool_new(threads, &pool, err);

	if (rc < 0) {
		return rc;
	}
	sky_pool_for(pool, n, fn, j);
	sky_pool_free(pool);
	if (j->rc < 0) {
		*err = j->err;
	}
	return j->rc;
}

static int all_keys(struct job *j, int64_t *n_p, int show, struct sky_err *err)
{
	struct sky_object *v;
	int64_t n;
	int rc = sky_store_list(j->s, "", 0, &v, &n, err);

	if (rc < 0) {
		return rc;
	}
	j->names = calloc((size_t)n + 1, sizeof(*j->names));
	if (!j->names) {
		sky_objects_free(v, n);
		return sky_fail_mem(err, "names of %lld objects", (long long)n);
	}
	for (int64_t i = 0; i < n; i++) {
		j->names[i] = v[i].key;         /* kept until the end */
		if (show) {
			printf("%llu\t%s\n", (unsigned long long)v[i].bytes, v[i].key);
		}
	}
	*n_p = n;
	return 0;
}

static int usage(void)
{
	fputs("usage: storecp [--endpoint-url URL] [--parallel N] [--part-size BYTES] [-j N] put|get|list STORE …\n",
	      stderr);
	return 2;
}

int main(int argc, char **argv)
{
	struct sky_store_opt opt = { 0 };
	struct sky_err err = { 0 };
	struct job j = { 0 };
	int i = 1, threads = 4, rc;
	int64_t n;

	for (; i + 1 < argc && argv[i][0] == '-'; i += 2) {
		if (strcmp(argv[i], "--endpoint-url") == 0) {
			opt.endpoint_url = argv[i + 1];
		} else if (strcmp(argv[i], "--parallel") == 0) {
			opt.n_parallel = (int)strtol(argv[i + 1], NULL, 10);
		} else if (strcmp(argv[i], "--part-size") == 0) {
			opt.part_bytes = strtoull(argv[i + 1], NULL, 10);
		} else if (strcmp(argv[i], "--bwlimit") == 0) {
			opt.bw_limit = strtoull(argv[i + 1], NULL, 10);
		} else if (strcmp(argv[i], "-j") == 0) {
			threads = (int)strtol(argv[i + 1], NULL, 10);
		} else {
			return usage();
		}
	}
	if (i + 1 >= argc) {
		return usage();
	}
	rc = sky_store_open(argv[i + 1], &opt, &j.s, &err);
	if (rc == 0 && strcmp(argv[i], "put") == 0) {
		j.names = argv + i + 2;
		rc = run(&j, argc - i - 2, threads, put_one, &err);
	} else if (rc == 0 && strcmp(argv[i], "get") == 0 && i + 3 < argc) {
		j.folder = argv[i + 2];
		j.names = argv + i + 3;
		n = argc - i - 3;
		rc = strcmp(argv[i + 3], "-") == 0 ? all_keys(&j, &n, 0, &err) : 0;
		rc = rc < 0 ? rc : run(&j, n, threads, get_one, &err);
	} else if (rc == 0 && strcmp(argv[i], "list") == 0) {
		rc = all_keys(&j, &n, 1, &err);
	} else if (rc == 0) {
		rc = usage();
	}
	sky_store_close(j.s);
	if (rc < 0) {
		fprintf(stderr, "storecp: %s\n", err.msg);
	}
	return rc < 0 ? -rc : rc;
}
