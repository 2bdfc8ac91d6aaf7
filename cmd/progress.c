/* Progress: a line on the terminal while we are in the foreground, plain lines with --stats, a line on SIGUSR1. */
#include "cmd/cmd_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/num.h"
#include "base/time.h"

static struct cmd_meter *standing;      /* its line is on the terminal */

/* SKYRL_TEST_TTY=stderr makes tests see what a terminal would. */
static bool is_terminal(void)
{
	const char *test = getenv("SKYRL_TEST_TTY");

	if (cmd.progress == 2 || (cmd.quiet && cmd.progress == 0)) {
		return false;
	}
	if (cmd.progress == 1 || (test && strcmp(test, "stderr") == 0)) {
		return true;
	}
	return isatty(2) && tcgetpgrp(2) == getpgrp();
}

static int terminal_width(void)
{
	struct winsize ws;
	const char *text = getenv("COLUMNS");
	int64_t n = 0;

	if (ioctl(2, TIOCGWINSZ, &ws) == 0 && ws.ws_col > 0) {
		return ws.ws_col;
	}
	return text && sky_parse_i64(text, &n, NULL) == 0 && n > 0 && n < 10000 ? (int)n : 80;
}

static void raw_write(const char *p, size_t n)
{
	if (write(2, p, n) < 0) {
		standing = NULL;        /* a terminal that is gone needs no clearing */
	}
}

void cmd_meter_clear(void)
{
	if (standing) {
		standing = NULL;
		raw_write("\r\033[K", 4);
	}
}

void cmd_meter_start(struct cmd_meter *m, const char *what, const char *unit, double total, double done0)
{
	memset(m, 0, sizeof(*m));
	m->what = what;
	m->unit = unit;
	m->total = total;
	m->done = m->done0 = done0;
	m->t_start = m->t_shown = m->t_stats = sky_now();
}

/* "pretok: 1.2M of 5M rows, 24%, 350k rows/s, 12s left, EXTRA" */
static void meter_text(const struct cmd_meter *m, double now, const char *extra, char *out, size_t cap)
{
	double t = now - m->t_start, rate = t > 0 ? (m->done - m->done0) / t : 0;
	char done[32], total[32], speed[32], left[32] = "";
	size_t n;

	sky_fmt_count(done, sizeof(done), m->done);
	sky_fmt_count(speed, sizeof(speed), rate);
	if (m->total > 0) {
		sky_fmt_count(total, sizeof(total), m->total);
		n = (size_t)snprintf(out, cap, "%s: %s of %s %s, %.0f%%, %s %s/s", m->what, done, total, m->unit,
		                     100 * m->done / m->total, speed, m->unit);
		if (rate > 0 && m->total > m->done) {
			sky_fmt_duration(left, sizeof(left), (m->total - m->done) / rate);
		}
	} else {
		n = (size_t)snprintf(out, cap, "%s: %s %s, %s %s/s", m->what, done, m->unit, speed, m->unit);
	}
	if (n < cap) {
		snprintf(out + n, cap - n, "%s%s%s%s%s", left[0] ? ", " : "", left, left[0] ? " left" : "",
			 extra[0] ? ", " : "", extra);
	}
}

/* Cuts text to the width at a character, and control bytes to '?'. */
static size_t fit(char *text, int width)
{
	size_t i;
	int col = 0;

	for (i = 0; text[i]; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c < 0x20 || c == 0x7f) {
			text[i] = '?';
		}
		col += (c & 0xc0) != 0x80;
		if (col >= width) {
			break;
		}
	}
	return i;
}

void cmd_meter(struct cmd_meter *m, double done, const char *extra, ...)
{
	double now = sky_now();
	bool asked = cmd_sig_usr1();
	bool stats = cmd.stats_s > 0 && now - m->t_stats >= cmd.stats_s;
	bool line = now - m->t_shown >= 1.0 && is_terminal();
	char more[256] = "", text[600], out[700];
	va_list ap;

	m->done = done;
	if (!asked && !stats && !line) {
		return;
	}
	if (extra) {
		va_start(ap, extra);
		vsnprintf(more, sizeof(more), extra, ap);
		va_end(ap);
	}
	meter_text(m, now, more, text, sizeof(text));
	if (asked || stats) {
		cmd_say("", text);
		m->t_stats = stats ? now : m->t_stats;
	}
	if (line) {
		size_t n = fit(text, terminal_width());

		m->t_shown = now;
		m->shown = true;
		standing = m;
		n = (size_t)snprintf(out, sizeof(out), "\r%.*s\033[K", (int)n, text);
		raw_write(out, n);
	}
}

void cmd_meter_stop(struct cmd_meter *m)
{
	if (standing == m) {
		cmd_meter_clear();
	}
	m->shown = false;
}
