/* Debug trace: parsed once from SKYRL_DEBUG, one write a line so that threads do not mix. */
#include "base/log.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "base/time.h"

#define N_AREAS 32
#define AREA_CAP 24

static struct { char name[AREA_CAP]; int level; } areas[N_AREAS];
static int n_areas;
static int log_fd = STDERR_FILENO;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void setup(void)
{
	const char *p = getenv("SKYRL_DEBUG"), *file = getenv("SKYRL_DEBUG_FILE"), *end, *colon;
	size_t n;

	while (p && *p && n_areas < N_AREAS) {
		end = p + strcspn(p, ",");
		colon = memchr(p, ':', (size_t)(end - p));
		n = (size_t)((colon ? colon : end) - p);
		if (n > 0 && n < AREA_CAP) {
			memcpy(areas[n_areas].name, p, n);
			areas[n_areas].name[n] = '\0';
			areas[n_areas].level = colon && colon[1] >= '0' && colon[1] <= '9' ? colon[1] - '0' : 1;
			n_areas++;
		}
		p = *end ? end + 1 : end;
	}
	if (n_areas > 0 && file && *file) {
		int fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);

		log_fd = fd >= 0 ? fd : STDERR_FILENO;
	}
}

bool sky_log_on(const char *area, int level)
{
	int i;

	pthread_once(&once, setup);
	for (i = 0; i < n_areas; i++) {
		if (areas[i].level >= level && (strcmp(areas[i].name, area) == 0 ||
		                                strcmp(areas[i].name, "all") == 0)) {
			return true;
		}
	}
	return false;
}

void sky_log(const char *area, int level, const char *fmt, ...)
{
	char line[2048];
	va_list ap;
	int n, m;

	if (!sky_log_on(area, level)) {
		return;
	}
	n = snprintf(line, sizeof(line) - 1, "%.3f %s: ", sky_now(), area);
	va_start(ap, fmt);
	m = vsnprintf(line + n, sizeof(line) - 1 - (size_t)n, fmt, ap);
	va_end(ap);
	n += m < 0 ? 0 : m;
	if (n > (int)sizeof(line) - 2) {
		n = (int)sizeof(line) - 2;
	}
	line[n++] = '\n';
	if (write(log_fd, line, (size_t)n) < 0) {
		/* A trace that cannot be written must not stop the program. */
		return;
	}
}
