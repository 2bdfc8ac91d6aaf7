/* Writer of a Hugging Face directory: shards, index, side files, all in a temp folder that one rename makes visible. */
#include "weights/weights_int.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const pt_meta[] = { "format", "pt", NULL };

/* Weights in any form, and what belongs to a program that is at work in the folder. */
static int is_weight_file(const char *name)
{
	static const char *const suffixes[] = {
		".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pt", ".pth", ".ckpt", ".gguf",
			".h5", ".msgpack",
		".onnx", ".lock", ".traj",
	};
	size_t i, n = strlen(name), m;

	for (i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
		m = strlen(suffixes[i]);
		if (n >= m && strcmp(name + n - m, suffixes[i]) == 0) {
			return 1;
		}
	}
	return name[0] == '.';
}

static int copy_file(const char *from, const char *to, struct sky_err *err)
{
	char buf[65536];
	struct sky_out o;
	int64_t n = 0;
	int fd, rc;

	fd = open(from, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		return sky_fail_sys(err, "opening %s", from);
	}
	rc = sky_out_open(&o, to, 0, err);
	if (rc < 0) {
		close(fd);
		return rc;
	}
	/* A shared extent where the file system can; otherwise bytes. */
	if (ioctl(o.fd, FICLONE, fd) != 0) {
		while (rc == 0 && (n = sky_read_full(fd, buf, sizeof(buf), from, err)) > 0) {
			rc = sky_out_write(&o, buf, (size_t)n, err);
		}
		rc = n < 0 ? (int)n : rc;
	}
	close(fd);
	if (rc < 0) {
		sky_out_abort(&o);
		return rc;
	}
	return sky_out_commit(&o, err);
}

int sky_hf_copy_side(const char *from_dir, const char *to_dir, struct sky_err *err)
{
	char from[SKY_MAX_PATH], to[SKY_MAX_PATH];
	struct stat st;
	size_t n, i;
	char **names;
	int rc;

	rc = sky_list_dir(from_dir, &names, &n, err);
	if (rc < 0) {
		return rc;
	}
	for (i = 0; rc == 0 && i < n; i++) {
		if (is_weight_file(names[i])) {
			continue;
		}
		rc = sky_path_join(from, sizeof(from), from_dir, names[i], err);
		if (rc == 0) {
			rc = sky_path_join(to, sizeof(to), to_dir, names[i], err);
		}
		/* Links are followed: the Hugging Face cache consists of them. */
		if (rc == 0 && stat(from, &st) == 0 && S_ISREG(st.st_mode)) {
			rc = copy_file(from, to, err);
		}
	}
	sky_names_free(names, n);
	return rc;
}

static uint64_t item_bytes(const struct sky_hf_item *it)
{
	uint64_t bytes = 0;
	int64_t n;

	/* The writer of the file reports what overflows. */
	return sky_shape_bytes(it->spec.dtype, it->spec.shape, it->spec.n_dim, &n, &bytes) == 0 ? bytes : 0;
}

static int write_shard(const char *path, const struct sky_hf_item *items, int64_t n, struct sky_err *err)
{
	struct sky_st_out *o = NULL;
	struct sky_st_spec *specs = sky_malloc_array((size_t)n, sizeof(*specs));
	const struct sky_hf_item *it;
	int64_t i;
	int rc;

	if (!specs) {
		return sky_fail_mem(err, "writing %s", path);
	}
	for (i = 0; i < n; i++) {
		specs[i] = items[i].spec;
	}
	rc = sky_st_create(path, specs, n, pt_meta, 0, 0, &o, err);
	free(specs);
	for (i = 0; rc == 0 && i < n; i++) {
		it = &items[sky_st_out_spec(o, i)];
		rc = sky_st_out_write(o, it->data, item_bytes(it), err);
	}
	if (rc < 0) {
		sky_st_out_abort(o);
		return rc;
	}
	return sky_st_out_commit(o, err);
}

struct named_file { const char *name; int64_t shard; };

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct named_file *)a)->name, ((const struct named_file *)b)->name);
}

static int write_index(const char *path, struct named_file *map, int64_t n, int64_t n_shards, uint64_t total,
                       struct sky_err *err)
{
	struct sky_buf b = SKY_BUF_INIT(SKY_MAX_JSON_BYTES);
	char file[64];
	struct sky_jw w;
	int64_t i;
	int rc;

	qsort(map, (size_t)n, sizeof(*map), by_name);
	for (i = 1; i < n; i++) {
		if (strcmp(map[i - 1].name, map[i].name) == 0) {
			return sky_fail(err, SKY_E_USAGE, "writing %s: tensor \"%.200s\" occurs twice", path,
			                map[i].name);
		}
	}
	sky_jw_init(&w, &b, err);
	sky_jw_obj(&w);
	sky_jw_key(&w, "metadata");
	sky_jw_obj(&w);
	sky_jw_key(&w, "total_size");
	sky_jw_u64(&w, total);
	sky_jw_close_obj(&w);
	sky_jw_key(&w, "weight_map");
	sky_jw_obj(&w);
	for (i = 0; i < n; i++) {
		snprintf(file, sizeof(file), "model-%05lld-of-%05lld.safetensors", (long long)map[i].shard,
		         (long long)n_shards);
		sky_jw_kstr(&w, map[i].name, file);
	}
	sky_jw_close_obj(&w);
	sky_jw_close_obj(&w);
	rc = sky_jw_end(&w);
	if (rc == 0) {
		rc = sky_file_publish(path, b.ptr, b.n, 0, err);
	}
	sky_buf_release(&b);
	return rc;
}

/* End of the shard that starts at i: at least one tensor, then as many as fit. */
static int64_t shard_end(const struct sky_hf_item *items, int64_t i, int64_t n, uint64_t shard_bytes)
{
	uint64_t bytes = item_bytes(&items[i]), more;

	for (i++; i < n; i++) {
		more = item_bytes(&items[i]);
		if (more > shard_bytes || bytes > shard_bytes - more) {
			break;
		}
		bytes += more;
	}
	return i;
}

static int write_sharded(const char *dir, const struct sky_hf_item *items, int64_t n, uint64_t shard_bytes,
                         int64_t n_shards,
                         struct sky_err *err)
{
	struct named_file *map = sky_malloc_array((size_t)n, sizeof(*map));
	char path[SKY_MAX_PATH];
	uint64_t total = 0;
	int64_t i, j, end, shard = 0;
	int rc = 0;

	if (!map) {
		return sky_fail_mem(err, "writing %s", dir);
	}
	for (i = 0; rc == 0 && i < n; i = end) {
		end = shard_end(items, i, n, shard_bytes);
		shard++;
		for (j = i; j < end; j++) {
			map[j].name = items[j].spec.name;
			map[j].shard = shard;
			total += item_bytes(&items[j]);
		}
		if (snprintf(path, sizeof(path), "%s/model-%05lld-of-%05lld.safetensors", dir, (long long)shard,
		             (long long)n_shards) >= (int)sizeof(path)) {
			rc = sky_fail(err, SKY_E_LIMIT, "path %.200s is too long", dir);
		} else {
			rc = write_shard(path, items + i, end - i, err);
		}
	}
	if (rc == 0) {
		rc = sky_path_join(path, sizeof(path), dir, "model.safetensors.index.json", err);
	}
	if (rc == 0) {
		rc = write_index(path, map, n, n_shards, total, err);
	}
	free(map);
	return rc;
}

static int write_weights(const char *dir, const struct sky_hf_item *items, int64_t n, uint64_t shard_bytes,
                         struct sky_err *err)
{
	char path[SKY_MAX_PATH];
	int64_t i, n_shards = 0;
	int rc;

	for (i = 0; i < n; i = shard_end(items, i, n, shard_bytes)) {
		n_shards++;
	}
	if (n_shards > 1) {
		return write_sharded(dir, items, n, shard_bytes, n_shards, err);
	}
	rc = sky_path_join(path, sizeof(path), dir, "model.safetensors", err);
	return rc < 0 ? rc : write_shard(path, items, n, err);
}

int sky_hf_write(const char *dir, const struct sky_hf_item *items, int64_t n, const char *like_dir,
                 uint64_t shard_bytes,
                 unsigned out_flags, struct sky_err *err)
{
	struct sky_outdir o;
	int rc;

	rc = sky_outdir_open(&o, dir, out_flags, err);
	if (rc < 0) {
		return rc;
	}
	rc = like_dir ? sky_hf_copy_side(like_dir, o.tmp, err) : 0;
	if (rc == 0) {
		rc = write_weights(o.tmp, items, n, shard_bytes ? shard_bytes : UINT64_MAX, err);
	}
	if (rc < 0) {
		sky_outdir_abort(&o);
		return rc;
	}
	return sky_outdir_commit(&o, err);
}
