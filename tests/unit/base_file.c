/* file, publish, map: outputs appear whole or not at all. */
#include "base/base.h"
#include "../testlib.h"

#include <fcntl.h>

static struct sky_err err;

static size_t n_entries(const char *dir)
{
	char **names = NULL;
	size_t n = 0;

	if (sky_list_dir(dir, &names, &n, &err) < 0) {
		return SIZE_MAX;
	}
	sky_names_free(names, n);
	return n;
}

static void test_publish(void)
{
	char dir[T_PATH_MAX], path[T_PATH_MAX + 16], *text;
	struct sky_out o = { 0 };
	char big[300000];
	size_t n;

	snprintf(dir, sizeof(dir), "%s", t_path("a/b/c"));
	T_RC(sky_mkdirs(dir, &err), 0, &err, "nested folders");
	T_RC(sky_mkdirs(dir, &err), 0, &err, "again is fine");
	snprintf(path, sizeof(path), "%s/out", dir);
	sky_out_abort(&o);
	T_RC(sky_out_open(&o, path, 0, &err), 0, &err, "opening");
	memset(big, 'x', sizeof(big));
	T_RC(sky_out_write(&o, "head", 4, &err), 0, &err, "small piece");
	T_RC(sky_out_write(&o, big, sizeof(big), &err), 0, &err, "large piece");
	T_OK(!sky_file_exists(path) && n_entries(dir) == 1, "nothing is visible but the temp");
	T_I64(o.n_bytes, 300004, "bytes are counted");
	T_RC(sky_out_commit(&o, &err), 0, &err, "commit");
	text = t_read(path, &n);
	T_OK(text && n == 300004 && memcmp(text, "headx", 5) == 0, "content");
	free(text);
	T_I64(n_entries(dir), 1, "the temp is gone");
	T_RC(sky_out_open(&o, path, 0, &err), SKY_E_USAGE, &err, "an existing target is refused");
	T_HAS(err.msg, "--force", "with the remedy");
	T_RC(sky_file_publish(path, "new", 3, SKY_OUT_REPLACE, &err), 0, &err, "replaced where asked");
	T_RC(sky_out_open(&o, path, SKY_OUT_REPLACE, &err), 0, &err, "opening once more");
	T_RC(sky_out_write(&o, "lost", 4, &err), 0, &err, "writing");
	sky_out_abort(&o);
	sky_out_abort(&o);
	text = t_read(path, &n);
	T_STR(text, "new", "an aborted output changes nothing");
	free(text);
	T_I64(n_entries(dir), 1, "and leaves nothing");
	T_RC(sky_out_open(&o, dir, 0, &err), SKY_E_USAGE, &err, "a folder is no file");
	T_RC(sky_out_open(&o, t_path("no/such/file"), 0, &err), SKY_E_MISSING, &err, "a missing folder");
	T_OK(o.fd == -1, "nothing is open after a failure");
	T_RC(sky_file_publish("/dev/null", "x", 1, 0, &err), 0, &err, "devices are written directly");
	/* Another process made the target meanwhile. */
	snprintf(path, sizeof(path), "%s/race", dir);
	T_RC(sky_out_open(&o, path, 0, &err), 0, &err, "opening a target that is free");
	T_RC(sky_file_publish(path, "first", 5, 0, &err), 0, &err, "another one takes it");
	T_RC(sky_out_commit(&o, &err), SKY_E_USAGE, &err, "the second commit is refused");
	text = t_read(path, &n);
	T_STR(text, "first", "the first one stays");
	free(text);
	T_I64(n_entries(dir), 2, "no temp stays");
}

static void test_full_disk(void)
{
	struct sky_out o = { 0 };
	char block[4096] = { 0 };
	int rc = 0, i;

	if (access("/dev/full", W_OK) != 0) {
		t_skip("no /dev/full here");
		return;
	}
	T_RC(sky_out_open(&o, "/dev/full", 0, &err), 0, &err, "opening a full device");
	for (i = 0; i < 100 && rc == 0; i++) {
		rc = sky_out_write(&o, block, sizeof(block), &err);
	}
	T_RC(rc, SKY_E_SYS, &err, "a full device is an error");
	T_HAS(err.msg, "/dev/full", "that names the file");
	sky_out_abort(&o);
}

static void test_dirs(void)
{
	char path[T_PATH_MAX], file[T_PATH_MAX + 16], *text;
	struct sky_outdir o = { 0 };
	int round;

	sky_outdir_abort(&o);
	snprintf(path, sizeof(path), "%s", t_path("d/model"));
	T_RC(sky_mkdirs(t_path("d"), &err), 0, &err, "parent");
	for (round = 0; round < 2; round++) {
		T_RC(sky_outdir_open(&o, path, round ? SKY_OUT_REPLACE : 0, &err), 0, &err, "open a folder, round %d",
		     round);
		snprintf(file, sizeof(file), "%s/f%d", o.tmp, round);
		T_RC(sky_file_publish(file, "x", 1, 0, &err), 0, &err, "a file inside");
		T_RC(sky_outdir_commit(&o, &err), 0, &err, "commit it");
		snprintf(file, sizeof(file), "%s/f%d", path, round);
		text = t_read(file, NULL);
		T_STR(text, "x", "the file is there");
		free(text);
	}
	T_OK(n_entries(path) == 1 && n_entries(t_path("d")) == 1, "the old content is gone, no temp stays");
	T_RC(sky_outdir_open(&o, path, 0, &err), SKY_E_USAGE, &err, "an existing folder is refused");
	T_RC(sky_outdir_open(&o, file, SKY_OUT_REPLACE, &err), SKY_E_USAGE, &err, "a file is no folder");
	T_RC(sky_outdir_open(&o, path, SKY_OUT_REPLACE, &err), 0, &err, "open for an abort");
	snprintf(file, sizeof(file), "%s/sub", o.tmp);
	T_RC(sky_mkdirs(file, &err), 0, &err, "with a folder inside");
	sky_outdir_abort(&o);
	T_OK(n_entries(path) == 1 && n_entries(t_path("d")) == 1, "an aborted folder leaves nothing");
}

static void test_signal_path(void)
{
	struct sky_out o = { 0 };
	struct sky_outdir d = { 0 };
	char file[T_PATH_MAX + 16];

	T_RC(sky_mkdirs(t_path("s"), &err), 0, &err, "folder");
	T_RC(sky_out_open(&o, t_path("s/f"), 0, &err), 0, &err, "an open output");
	T_RC(sky_outdir_open(&d, t_path("s/d"), 0, &err), 0, &err, "an open output folder");
	snprintf(file, sizeof(file), "%s/f", d.tmp);
	T_RC(sky_file_publish(file, "x", 1, 0, &err), 0, &err, "with a file");
	T_I64(n_entries(t_path("s")), 2, "two temps");
	sky_out_unlink_all();
	T_I64(n_entries(t_path("s")), 0, "the signal path removes them");
	sky_out_abort(&o);
	sky_outdir_abort(&d);
}

static void test_clean(void)
{
	char name[300];
	pid_t pid;

	T_RC(sky_mkdirs(t_path("t"), &err), 0, &err, "folder");
	pid = fork();
	if (pid == 0) {
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	snprintf(name, sizeof(name), "t/.a.tmp.%ld.0123abcd", (long)pid);
	t_write(name, "x", 1);
	snprintf(name, sizeof(name), "t/.b.tmp.%ld.0123abcd", (long)getpid());
	t_write(name, "x", 1);
	snprintf(name, sizeof(name), "t/.c.tmp.%ld.keep", (long)pid);
	t_write(name, "x", 1);
	snprintf(name, sizeof(name), "t/d.tmp.%ld.0123abcd", (long)pid);
	t_write(name, "x", 1);
	T_RC(sky_clean_temps(t_path("t"), 3600, &err), 0, &err, "fresh temps stay");
	T_I64(n_entries(t_path("t")), 4, "all four");
	T_RC(sky_clean_temps(t_path("t"), -1, &err), 0, &err, "temps of any age");
	T_I64(n_entries(t_path("t")), 3, "that of the dead process is gone, the others are not ours to remove");
	T_RC(sky_clean_temps(t_path("none"), -1, &err), SKY_E_MISSING, &err, "a missing folder");
}

static void test_read_map(void)
{
	struct sky_buf b = SKY_BUF_INIT(5);
	struct sky_map m = SKY_MAP_INIT;
	char out[16];
	uint64_t n = 0;

	t_write("five", "12345", 5);
	t_write("empty", "", 0);
	T_RC(sky_file_read(t_path("five"), &b, &err), 0, &err, "a file as large as the limit");
	T_STR(b.ptr, "12345", "its content");
	sky_buf_release(&b);
	sky_buf_init(&b, 4);
	T_RC(sky_file_read(t_path("five"), &b, &err), SKY_E_LIMIT, &err, "a file above the limit");
	sky_buf_release(&b);
	T_RC(sky_file_read(t_path("none"), &b, &err), SKY_E_MISSING, &err, "a missing file");
	T_RC(sky_file_size(t_path("five"), &n, &err), 0, &err, "size");
	T_I64(n, 5, "is five");
	T_RC(sky_map_open(&m, t_path("five"), &err), 0, &err, "mapping");
	T_OK(memcmp(sky_map_at(&m, 1, 4), "2345", 4) == 0, "view");
	T_OK(!sky_map_at(&m, 1, 5) && !sky_map_at(&m, UINT64_MAX, 2) && sky_map_at(&m, 5, 0), "views outside");
	T_I64(sky_load_u32(sky_map_at(&m, 1, 4)), 0x35343332, "little-endian load");
	sky_map_advise(&m, 0, 5, SKY_MAP_WILLNEED);
	sky_map_close(&m);
	sky_map_close(&m);
	T_RC(sky_map_open(&m, t_path("empty"), &err), 0, &err, "an empty file");
	T_OK(m.n == 0 && sky_map_at(&m, 0, 0) && !sky_map_at(&m, 0, 1), "has an empty view");
	sky_map_close(&m);
	T_RC(sky_map_open(&m, "/", &err), SKY_E_USAGE, &err, "a folder is not mapped");
	T_OK(sky_path_join(out, sizeof(out), "a/", "b", &err) == 0 && strcmp(out, "a/b") == 0, "join");
	T_OK(sky_path_join(out, sizeof(out), "a", "/b", &err) == 0 && strcmp(out, "/b") == 0,
	     "an absolute name replaces");
	T_RC(sky_path_join(out, sizeof(out), "0123456789", "0123456789", &err), SKY_E_LIMIT, &err, "too long");
	sky_store_u64(out, 0x0102030405060708ull);
	T_OK(out[0] == 8 && sky_load_u64(out) == 0x0102030405060708ull && sky_load_u16(out) == 0x0708,
	     "stores and loads");
}

int main(void)
{
	test_publish();
	test_full_disk();
	test_dirs();
	test_signal_path();
	test_clean();
	test_read_map();
	return t_done();
}
