/* Decompressors: whatever the bytes, reading ends, within bounds; a failure stays. */
#include <assert.h>
#include <sys/mman.h>
#include <unistd.h>
#include "store/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct sky_stream_opt opt = { .zstd_window_log = 20 };
	struct sky_stream *s = NULL;
	struct sky_err err;
	uint64_t total = 0;
	char buf[4096];
	int64_t got = 0;
	int fd = memfd_create("fuzz", 0);

	if (fd < 0 || n > 1u << 20 || write(fd, p, n) != (ssize_t)n || lseek(fd, 0, SEEK_SET) < 0) {
		close(fd);
		return 0;
	}
	if (sky_stream_fd(fd, "fuzz", &opt, &s, &err) == 0) {
		while (total < 8u << 20 && (got = sky_stream_read(s, buf, sizeof(buf), &err)) > 0) {
			assert(got <= (int64_t)sizeof(buf));
			total += (uint64_t)got;
		}
		assert(sky_stream_offset(s) <= n);
		assert(got >= 0 || sky_stream_read(s, buf, sizeof(buf), &err) == got);
		sky_stream_close(s);
	}
	close(fd);
	return 0;
}
