/* One record a line: a bounded line reader over a descriptor. Writing is sky_jw plus '\n'. */
#ifndef SKY_BASE_NDJSON_H
#define SKY_BASE_NDJSON_H

#include <stdint.h>
#include "base/buf.h"
#include "base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sky_lines {
	int fd;                 /* borrowed */
	const char *name;       /* borrowed, for messages */
	int64_t n_line;         /* number of the line last returned, from 1 */
	struct sky_buf buf;
	size_t pos, scan;       /* start of the next line, and where no LF was seen yet */
	size_t max_line;
	int eof;
};

void sky_lines_init(struct sky_lines *l, int fd, const char *name, size_t max_line);
void sky_lines_release(struct sky_lines *l);
/* Next line without its end (LF or CRLF), NUL behind it; valid until the next call. SKY_EOF at the end; a last line without LF counts.
 * Too long: SKY_E_LIMIT naming file and line. timeout_s < 0 waits for ever; else SKY_E_AGAIN after that long. */
int sky_lines_next(struct sky_lines *l, double timeout_s, const char **line_p, size_t *n_p, struct sky_err *err) SKY_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
