/* skyrl-pretok: rows that give no sample. Counts by reason, the policy of --on-error, the quarantine file, --max-errors. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/pretok_int.h"

#define MAX_RAW (1u << 20)      /* bytes of a row that go into its record */

bool pretok_is_error(enum sky_reason why)
{
	return why == SKY_ROW_BAD_JSON || why == SKY_ROW_BAD_UTF8 || why == SKY_ROW_BAD_SCHEMA || why == SKY_ROW_ID_RANGE ||
	       why == SKY_ROW_TEMPLATE || why == SKY_ROW_LOST_CONTENT;
}

int pretok_rejects_parse(struct pretok_rejects *r, struct sky_err *err)
{
	const char *s = pt.on_error ? pt.on_error : "fail", *m = pt.max_errors;
	size_t n = m ? strlen(m) : 0;
	char number[64];
	int rc = 0;

	memset(r, 0, sizeof *r);
	r->fd = -1;
	r->max = -1;
	r->max_share = -1;
	if (!strcmp(s, "skip")) {
		r->how = ON_SKIP;
	} else if (!strncmp(s, "quarantine=", 11) && s[11]) {
		r->how = ON_QUARANTINE;
		r->path = s + 11;
	} else if (strcmp(s, "fail")) {
		return sky_fail(err, SKY_E_USAGE, "--on-error \"%s\": fail, skip or quarantine=FILE", s);
	}
	if (n && m[n - 1] == '%' && n < sizeof number) {
		memcpy(number, m, n - 1);
		number[n - 1] = '\0';
		rc = sky_parse_f64(number, &r->max_share, err);
		r->max_share /= 100;
		if (!rc && (r->max_share < 0 || r->max_share > 1)) {
			rc = sky_fail(err, SKY_E_USAGE, "--max-errors %s: between 0%% and 100%%", m);
		}
	} else if (n) {
		rc = sky_parse_count(m, &r->max, err);
	}
	return sky_while(err, rc, "--max-errors");
}

static int part_path(const struct pretok_rejects *r, char *out, size_t cap, struct sky_err *err)
{
	if ((size_t)snprintf(out, cap, "%s.part", r->path) >= cap) {
		return sky_fail(err, SKY_E_LIMIT, "%s: path too long", r->path);
	}
	return 0;
}

int pretok_rejects_open(struct pretok_rejects *r, uint64_t keep, struct sky_err *err)
{
	char path[SKY_MAX_PATH];
	int rc;

	if (r->how != ON_QUARANTINE) {
		return 0;
	}
	rc = part_path(r, path, sizeof path, err);
	if (rc < 0) {
		return rc;
	}
	r->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (r->fd < 0 || ftruncate(r->fd, (off_t)keep) || lseek(r->fd, (off_t)keep, SEEK_SET) < 0) {
		return sky_fail_sys(err, "%s", path);
	}
	r->n_bytes = keep;
	return 0;
}

static int write_record(struct pretok_rejects *r, enum sky_reason why, const char *file, int64_t row, uint64_t byte,
                        const char *detail, const char *raw, size_t n_raw, struct sky_err *err)
{
	struct sky_buf line = SKY_BUF_INIT(16u << 20), fixed = SKY_BUF_INIT(8u << 20);
	struct sky_jw w;
	int rc;

	sky_jw_init(&w, &line, err);
	sky_jw_obj(&w);
	sky_jw_kstr(&w, "file", file);
	sky_jw_ki64(&w, "line", row);
	sky_jw_ki64(&w, "byte", (int64_t)byte);
	sky_jw_kstr(&w, "reason", sky_reason_name(why));
	sky_jw_kstr(&w, "detail", detail);
	n_raw = n_raw < MAX_RAW ? n_raw : MAX_RAW;
	rc = raw ? sky_utf8_replace(raw, n_raw, &fixed, err) : 0;
	if (raw && !rc) {
		sky_jw_key(&w, "raw");
		sky_jw_strn(&w, fixed.ptr ? fixed.ptr : "", fixed.n);
	}
	sky_jw_close_obj(&w);
	rc = rc ? rc : sky_jw_end(&w);
	rc = rc ? rc : sky_buf_addc(&line, '\n', err);
	rc = rc ? rc : sky_write_full(r->fd, line.ptr, line.n, r->path, err);
	r->n_bytes += rc ? 0 : line.n;
	sky_buf_release(&line);
	sky_buf_release(&fixed);
	return rc;
}

static int64_t n_errors(const struct pretok_rejects *r)
{
	int64_t n = 0;

	for (int i = 0; i < SKY_ROW_REASONS; i++) {
		n += pretok_is_error((enum sky_reason)i) ? r->count[i] : 0;
	}
	return n;
}

int pretok_reject(struct pretok_rejects *r, enum sky_reason why, const char *file, int64_t row, uint64_t byte,
                  const char *detail, const char *raw, size_t n_raw, struct sky_err *err)
{
	bool skip_utf8 = why == SKY_ROW_BAD_UTF8 && pt.invalid_utf8 == SKY_UTF8_SKIP;
	int rc = 0;

	r->count[why]++;
	if (why == SKY_ROW_EMPTY && pt.empty == EMPTY_ERROR) {
		return sky_fail(err, SKY_E_DATA, "%s:%lld: byte %llu: empty: %s (--empty)", file, (long long)row,
				(unsigned long long)byte, detail);
	}
	if (why == SKY_ROW_TOO_LONG && pt.overlong == OVERLONG_ERROR) {
		return sky_fail(err, SKY_E_DATA, "%s:%lld: byte %llu: %s (--overlong)", file, (long long)row,
				(unsigned long long)byte, detail);
	}
	if (!pretok_is_error(why) || skip_utf8) {
		return 0;
	}
	if (r->how == ON_FAIL) {
		return sky_fail(err, SKY_E_DATA, "%s:%lld: byte %llu: %s: %s (--on-error skip goes on)", file, (long long)row,
				(unsigned long long)byte, sky_reason_name(why), detail);
	}
	if (r->how == ON_QUARANTINE) {
		rc = write_record(r, why, file, row, byte, detail, raw, n_raw, err);
	}
	if (!rc && r->max >= 0 && n_errors(r) > r->max) {
		rc = sky_fail(err, SKY_E_DATA, "%s:%lld: byte %llu: %s: %s; more than %lld bad rows (--max-errors)", file,
			      (long long)row, (unsigned long long)byte, sky_reason_name(why), detail, (long long)r->max);
	}
	return rc;
}

int pretok_rejects_commit(struct pretok_rejects *r, struct sky_err *err)
{
	char path[SKY_MAX_PATH];
	int rc;

	if (r->max_share >= 0 && (double)n_errors(r) > r->max_share * (double)r->n_row) {
		return sky_fail(err, SKY_E_DATA, "%lld of %lld rows are bad, more than %s (--max-errors)",
				(long long)n_errors(r),
				(long long)r->n_row, pt.max_errors);
	}
	if (r->fd < 0) {
		return 0;
	}
	rc = part_path(r, path, sizeof path, err);
	if (!rc && (fsync(r->fd) || rename(path, r->path))) {
		rc = sky_fail_sys(err, "%s", r->path);
	}
	close(r->fd);
	r->fd = -1;
	return rc;
}

void pretok_rejects_abort(struct pretok_rejects *r)
{
	if (r->fd >= 0) {
		close(r->fd);
		r->fd = -1;
	}
}

void pretok_counts_json(const struct pretok_rejects *r, struct sky_jw *w)
{
	sky_jw_obj(w);
	for (int i = SKY_ROW_BLANK; i < SKY_ROW_REASONS; i++) {
		if (r->count[i]) {
			sky_jw_ki64(w, sky_reason_name((enum sky_reason)i), r->count[i]);
		}
	}
	sky_jw_close_obj(w);
}
