/* Messages: one line, one write, to stderr. */
#include "cmd/cmd_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void cmd_say(const char *kind, const char *text)
{
	char line[2048];
	size_t n, i, start;
	const char *p;
	int e = errno;

	cmd_meter_clear();
	n = (size_t)snprintf(line, sizeof(line), "%s: %s", cmd_prog.name, kind);
	start = n;
	n += (size_t)snprintf(line + n, sizeof(line) - n, "%s", text);
	if (n >= sizeof(line) - 1) {
		n = sizeof(line) - 2;
	}
	for (i = start; i < n; i++) {   /* names come from outside: no escape sequence may reach the terminal */
		unsigned char c = (unsigned char)line[i];

		line[i] = c < 0x20 || c == 0x7f ? '?' : line[i];
	}
	line[n++] = '\n';
	for (p = line; n > 0;) {
		ssize_t put = write(2, p, n);

		if (put < 0 && errno == EINTR) {
			continue;
		}
		if (put <= 0) {
			break;  /* nowhere left to complain */
		}
		p += put;
		n -= (size_t)put;
	}
	errno = e;
}

static void say_v(const char *kind, const char *fmt, va_list ap)
{
	char text[1800];

	vsnprintf(text, sizeof(text), fmt, ap);
	cmd_say(kind, text);
}

void cmd_error(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say_v("", fmt, ap);
	va_end(ap);
}

void cmd_warn(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say_v("warning: ", fmt, ap);
	va_end(ap);
}

void cmd_note(const char *fmt, ...)
{
	va_list ap;

	if (!cmd.quiet) {
		va_start(ap, fmt);
		say_v("", fmt, ap);
		va_end(ap);
	}
}

void cmd_verbose(int level, const char *fmt, ...)
{
	va_list ap;

	if (cmd.verbose >= level) {
		va_start(ap, fmt);
		say_v("", fmt, ap);
		va_end(ap);
	}
}

static bool env_set(const char *name)
{
	const char *v = getenv(name);

	return v && *v;
}

bool cmd_color(int fd)
{
	const char *term = getenv("TERM");

	if (cmd.color == 1 || cmd.color == 2) {
		return cmd.color == 1;
	}
	if (env_set("CLICOLOR_FORCE") || env_set("FORCE_COLOR")) {
		return true;
	}
	if (env_set("NO_COLOR") || !term || strcmp(term, "dumb") == 0) {
		return false;
	}
	return fd == 1 ? cmd_out_is_tty() : isatty(fd) != 0;
}
