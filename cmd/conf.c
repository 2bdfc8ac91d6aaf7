/* Settings from files and environment, and --print-config.
 *
 * A file has lines "key = value", sections [skyrl-pretok], comments from # at the start of a line. Keys are long
 * option names, or dotted names of SkyRL. Keys before the first section hold for all programs and must be common
 * options or options of this program; a section of another program is skipped. A value may stand in double quotes,
 * with \" \\ \n. */
#include "cmd/cmd_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"

#ifndef SYSCONFDIR
#define SYSCONFDIR "/etc"
#endif

#define CONF_MAX_BYTES (1u << 20)

/* Options that many programs share: legal before the first section even where this program has no use for them. */
static const char *const shared_names[] = { "threads", "device", "seed", "json", "force", "dry-run", "endpoint-url",
	"region", "profile", "no-sign-request", "addressing", "dtype", NULL };

static char *trim(char *s)
{
	char *end;

	s += strspn(s, " \t\r");
	end = s + strlen(s);
	while (end > s && strchr(" \t\r", end[-1])) {
		*--end = '\0';
	}
	return s;
}

/* A value in quotes is replaced by its content, in place. */
static int unquote(char *s)
{
	char *to = s, *p = s + 1;

	if (*s != '"') {
		return 0;
	}
	for (; *p && *p != '"'; p++) {
		if (*p == '\\' && p[1]) {
			p++;
			*to++ = *p == 'n' ? '\n' : *p;
		} else {
			*to++ = *p;
		}
	}
	if (*p != '"' || p[1]) {
		return -1;
	}
	*to = '\0';
	return 0;
}

static bool in_list(const char *const *names, const char *name)
{
	for (; *names; names++) {
		if (strcmp(*names, name) == 0) {
			return true;
		}
	}
	return false;
}

static int unknown_key(const char *where, const char *key, struct sky_err *err)
{
	const char *names[256], *near;
	int i, n = 0;

	for (i = 0; i < opt_set.n && n < 255; i++) {
		if (opt_is_option(opt_set.v[i].row)) {
			names[n++] = opt_set.v[i].row->name;
		}
	}
	names[n] = NULL;
	near = opt_nearest(key, names);
	return sky_fail(err, SKY_E_USAGE, "%s: unknown key %s%s%s%s", where, key, near ? "; did you mean " : "",
	                near ? near : "", near ? "?" : "");
}

/* One "key = value". own: inside the section of this program. */
static int conf_line(char *line, bool own, const char *where, enum opt_level level, struct sky_err *err)
{
	char *eq = strchr(line, '='), *key, *value;
	int slot;

	if (!eq) {
		return sky_fail(err, SKY_E_USAGE, "%s: expected key = value or [section]", where);
	}
	*eq = '\0';
	key = trim(line);
	value = trim(eq + 1);
	if (unquote(value) < 0) {
		return sky_fail(err, SKY_E_USAGE, "%s: %s: a quoted value ends with its quote", where, key);
	}
	if (strchr(key, '.')) {
		char pair[SKY_MAX_PATH];

		if ((size_t)snprintf(pair, sizeof(pair), "%s=%s", key, value) >= sizeof(pair)) {
			return sky_fail(err, SKY_E_LIMIT, "%s: %s: value is too long", where, key);
		}
		return sky_while(err, opt_set_dotted(pair, level, where, err), "%s", where);
	}
	slot = opt_find(key);
	if (slot >= 0 && (opt_set.v[slot].row->flags & OPT_NO_CONF)) {
		return sky_fail(err, SKY_E_USAGE, "%s: %s is for the command line only", where, key);
	}
	if (slot >= 0) {
		return opt_set_text(slot, value, level, where, err);
	}
	if (opt_known_anywhere(key) || (!own && in_list(shared_names, key))) {
		return 0;
	}
	return unknown_key(where, key, err);
}

static int conf_file(const char *path, enum opt_level level, struct sky_err *err)
{
	struct sky_buf buf = SKY_BUF_INIT(CONF_MAX_BYTES);
	char where[280], *line, *next;
	bool own = false, skip = false;
	int rc, n_line = 0;

	rc = sky_file_read(path, &buf, err);
	for (line = buf.ptr; rc >= 0 && line && *line; line = next) {
		size_t n = strcspn(line, "\n");

		next = line + n + (line[n] == '\n');
		line[n] = '\0';
		line = trim(line);
		snprintf(where, sizeof(where), "file %.256s:%d", path, ++n_line);
		if (*line == '\0' || *line == '#') {
			continue;
		}
		if (*line == '[') {
			char *end = strchr(line, ']');

			if (!end || end[1]) {
				rc = sky_fail(err, SKY_E_USAGE, "%s: a section is [name]", where);
				break;
			}
			*end = '\0';
			own = strcmp(line + 1, cmd_prog.name) == 0;
			skip = !own;
			continue;
		}
		if (!skip) {
			rc = conf_line(line, own, where, level, err);
		}
	}
	sky_buf_release(&buf);
	return rc;
}

static int conf_environment(struct sky_err *err)
{
	char name[128], origin[160];
	int i, rc;

	for (i = 0; i < opt_set.n; i++) {
		const struct opt_row *row = opt_set.v[i].row;
		const char *value;

		if (!opt_is_option(row) || (row->flags & OPT_NO_ENV) || row->type == OPT_T_CALL) {
			continue;
		}
		opt_env_name(row->name, name, sizeof(name));
		value = getenv(name);
		if (value && *value) {
			snprintf(origin, sizeof(origin), "env %s", name);
			rc = opt_set_text(i, value, OPT_L_ENV, origin, err);
			if (rc < 0) {
				return rc;
			}
		}
	}
	return 0;
}

/* ${XDG_CONFIG_HOME:-~/.config}/skyrl/config; a relative value is ignored, no HOME is no file. */
static int user_path(char *out, size_t cap)
{
	const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	int n;

	if (xdg && *xdg == '/') {
		n = snprintf(out, cap, "%s/skyrl/config", xdg);
	} else if (home && *home == '/') {
		n = snprintf(out, cap, "%s/.config/skyrl/config", home);
	} else {
		return -1;
	}
	return n > 0 && (size_t)n < cap ? 0 : -1;
}

int conf_load(const char *config, struct sky_err *err)
{
	char path[SKY_MAX_PATH];
	int rc = 0;

	if (!config || !*config) {
		config = getenv("SKYRL_CONFIG");
	}
	if (config && *config) {
		rc = conf_file(config, OPT_L_FILE, err);
	} else {
		if (access(SYSCONFDIR "/skyrl/config", F_OK) == 0) {
			rc = conf_file(SYSCONFDIR "/skyrl/config", OPT_L_SYSTEM, err);
		}
		if (rc >= 0 && user_path(path, sizeof(path)) == 0 && access(path, F_OK) == 0) {
			rc = conf_file(path, OPT_L_USER, err);
		}
	}
	return rc < 0 ? rc : conf_environment(err);
}

/* A value as conf_line reads it back. */
static int print_value(const char *value, struct sky_err *err)
{
	bool plain = *value && *value != '"' && !strchr(" \t", *value) && !strchr(" \t", value[strlen(value) - 1]) &&
		!strchr(value, '\n');
	int rc;

	if (plain) {
		return cmd_outs(value, err);
	}
	rc = cmd_outs("\"", err);
	for (; rc >= 0 && *value; value++) {
		if (*value == '"' || *value == '\\') {
			rc = cmd_out("\\", 1, err);
		}
		rc = rc < 0 ? rc : *value == '\n' ? cmd_outs("\\n", err) : cmd_out(value, 1, err);
	}
	return rc < 0 ? rc : cmd_outs("\"", err);
}

static int print_slot(const struct opt_slot *s, struct sky_err *err)
{
	const struct opt_row *row = s->row;
	const struct opt_list *l = row->p;
	int64_t i, n = row->type == OPT_T_TEXTS ? l->n : 1;
	int rc;

	if (s->level == OPT_L_NONE) {
		const char *unset = row->type == OPT_T_FLAG ? "no" : row->type == OPT_T_UP ? "0" : "";

		return cmd_outf(err, "# unset\n# %s = %s\n", row->name, unset);
	}
	rc = cmd_outf(err, "# %s\n", s->origin);
	for (i = 0; rc >= 0 && i < n; i++) {
		char count[16];
		const char *text = row->type == OPT_T_TEXTS ? l->v[i] : s->text;

		if (row->type == OPT_T_UP) {
			snprintf(count, sizeof(count), "%d", *(int *)row->p);
			text = count;
		}
		rc = cmd_outf(err, "%s = ", row->name);
		rc = rc < 0 ? rc : print_value(row->flags & OPT_SECRET ? "***" : text, err);
		rc = rc < 0 ? rc : cmd_outs("\n", err);
	}
	return rc;
}

int conf_print(struct sky_err *err)
{
	int rc = cmd_outf(err, "# %s%s%s, settings in effect\n[%s]\n", cmd_prog.name, opt_set.sub ? " " : "",
	                  opt_set.sub ? opt_set.sub->name : "", cmd_prog.name);
	int i;

	for (i = 0; rc >= 0 && i < opt_set.n; i++) {
		const struct opt_row *row = opt_set.v[i].row;

		if (opt_is_option(row) && row->type != OPT_T_CALL && !(row->flags & (OPT_NO_CONF | OPT_HIDDEN))) {
			rc = print_slot(&opt_set.v[i], err);
		}
	}
	return rc;
}
