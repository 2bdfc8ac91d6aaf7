/* Fuzz target: model.safetensors.index.json of a folder with two files. Accepted: every tensor of the index is there. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "weights/weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char dir[64];

static void clean(void)
{
	if (sky_remove_tree(dir, NULL) < 0) {
		_exit(1);
	}
}

static void publish(const char *name, const void *p, size_t n)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	if (sky_file_publish(path, p, n, SKY_OUT_REPLACE | SKY_OUT_NO_FSYNC, NULL) < 0) {
		abort();
	}
}

static void setup(void)
{
	static const char head[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}  ";
	char file[8 + sizeof(head)];

	snprintf(dir, sizeof(dir), "/tmp/skyrl-fuzz.XXXXXX");
	if (!mkdtemp(dir)) {
		abort();
	}
	atexit(clean);
	sky_store_u64(file, sizeof(head) - 1);
	memcpy(file + 8, head, sizeof(head));
	publish("one.safetensors", file, sizeof(file));
	file[10] = 'b';
	publish("two.safetensors", file, sizeof(file));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sky_hf *hf = NULL;
	struct sky_err err;

	if (!dir[0]) {
		setup();
	}
	publish("model.safetensors.index.json", data, size);
	if (sky_hf_open(dir, &hf, &err) < 0) {
		if (hf || !err.msg[0] || (err.code != SKY_E_DATA && err.code != SKY_E_MISSING &&
		                          err.code != SKY_E_LIMIT)) {
			abort();
		}
		return 0;
	}
	if (sky_hf_count(hf) < 1 || sky_hf_n_files(hf) < 1 || (!sky_hf_find(hf, "a") && !sky_hf_find(hf, "b"))) {
		abort();
	}
	sky_hf_close(hf);
	return 0;
}
