/* Texts made from the option table: --help, short usage, --version, --dump-options. */
#include "cmd/cmd_int.h"

#include <stdio.h>
#include <string.h>

#include "cmd/rev.h"

#define HELP_COLUMN 30
#define HELP_WIDTH 96

/* Columns a UTF-8 text takes: its code points. */
static int columns(const char *s)
{
	int n = 0;

	for (; *s; s++) {
		n += ((unsigned char)*s & 0xc0) != 0x80;
	}
	return n;
}

/* Bytes of s that fit in width columns, broken at a blank. */
static size_t wrap(const char *s, int width)
{
	size_t i, last = 0;
	int col = 0;

	for (i = 0; s[i]; i++) {
		col += ((unsigned char)s[i] & 0xc0) != 0x80;
		if (s[i] == ' ') {
			last = i;
		}
		if (col > width && last) {
			return last;
		}
	}
	return i;
}

/* Left part, then text wrapped in a column. */
static int print_columns(const char *left, const char *text, struct sky_err *err)
{
	int col = columns(left), rc;

	rc = cmd_outs(left, err);
	if (col > HELP_COLUMN - 2) {
		rc = rc < 0 ? rc : cmd_outs("\n", err);
		col = 0;
	}
	do {
		size_t n = wrap(text, HELP_WIDTH - HELP_COLUMN);

		rc = rc < 0 ? rc : cmd_outf(err, "%*s%.*s\n", HELP_COLUMN - col, "", (int)n, text);
		text += n + (text[n] == ' ');
		col = 0;
	} while (rc >= 0 && *text);
	return rc;
}

static int print_option(const struct opt_row *row, struct sky_err *err)
{
	char left[256], text[1024], letter[8] = "    ";
	bool show_def = row->def && *row->def && row->type != OPT_T_FLAG;

	if (row->letter) {
		snprintf(letter, sizeof(letter), "-%c, ", row->letter);
	}
	snprintf(left, sizeof(left), "  %s--%s%s%s", letter, row->name, row->arg ? " " : "", row->arg ? row->arg : "");
	snprintf(text, sizeof(text), "%s%s%s%s%s%s", row->help, show_def ? " (default " : "", show_def ? row->def : "",
	         show_def ? ")" : "", row->type == OPT_T_FLAG && row->def && strcmp(row->def, "yes") == 0 ? " (default on)" : "",
	         (row->flags & OPT_REQUIRED) ? " (required)" : "");
	return print_columns(left, text, err);
}

/* "usage: NAME [SUB] TEXT" for each line of the usage. */
static void usage_text(char *out, size_t cap, const char *lead)
{
	const char *usage = opt_set.sub ? opt_set.sub->usage : cmd_prog.usage;
	size_t n = 0;

	while (usage && *usage && n < cap) {
		size_t len = strcspn(usage, "\n");

		n += (size_t)snprintf(out + n, cap - n, "%s%s%s%s %.*s\n", n ? "       " : lead, cmd_prog.name,
		                      opt_set.sub ? " " : "", opt_set.sub ? opt_set.sub->name : "", (int)len, usage);
		usage += len + (usage[len] == '\n');
	}
}

static int print_subs(struct sky_err *err)
{
	const struct cmd_sub *sub;
	char left[128];
	int rc = 0;

	if (opt_set.sub || !cmd_prog.subs) {
		return 0;
	}
	rc = cmd_outf(err, "\nCommands (%s COMMAND --help)\n", cmd_prog.name);
	for (sub = cmd_prog.subs; rc >= 0 && sub->name; sub++) {
		snprintf(left, sizeof(left), "  %s", sub->name);
		rc = print_columns(left, sub->title, err);
	}
	return rc;
}

int help_print(struct sky_err *err)
{
	const char *title = opt_set.sub ? opt_set.sub->title : cmd_prog.title;
	const char *example = opt_set.sub ? opt_set.sub->example : cmd_prog.example;
	char usage[2048] = "";
	int i, rc;

	usage_text(usage, sizeof(usage), "usage: ");
	rc = cmd_outf(err, "%s%s%s: %s\n\n%s", cmd_prog.name, opt_set.sub ? " " : "",
		      opt_set.sub ? opt_set.sub->name : "", title, usage);
	if (rc >= 0 && example) {
		rc = cmd_outf(err, "example: %s\n", example);
	}
	rc = rc < 0 ? rc : print_subs(err);
	for (i = 0; rc >= 0 && i < opt_set.n; i++) {
		const struct opt_row *row = opt_set.v[i].row;

		if (row->type == OPT_T_HEAD) {
			rc = cmd_outf(err, "\n%s\n", row->name);
		} else if (!(row->flags & OPT_HIDDEN) && opt_find(row->name) == i) {    /* not one that a subcommand replaced */
			rc = i == 0 ? cmd_outs("\nOptions\n", err) : 0;
			rc = rc < 0 ? rc : print_option(row, err);
		}
	}
	return rc < 0 ? rc
		      : cmd_outf(err,
				 "\nOptions are also SKYRL_NAME in the environment and keys of configuration files: "
				 "man skyrl, man %s\n",
				 cmd_prog.name);
}

int help_short(struct sky_err *err)
{
	const char *title = opt_set.sub ? opt_set.sub->title : cmd_prog.title;
	const char *example = opt_set.sub ? opt_set.sub->example : cmd_prog.example;
	char usage[1024] = "", text[2048];

	usage_text(usage, sizeof(usage), "usage: ");
	snprintf(text, sizeof(text), "%s: %s\n%s%s%s%s", cmd_prog.name, title, usage, example ? "example: " : "",
	         example ? example : "", example ? "\n" : "");
	fputs(text, stderr);
	fprintf(stderr, "%s --help lists the options\n", cmd_prog.name);
	return sky_fail(err, SKY_E_USAGE, "%s", "");
}

int help_version(struct sky_err *err)
{
	int rc = cmd_outf(err, "%s (%s) %s\n", cmd_prog.name, PACKAGE_NAME, PACKAGE_VERSION);

	rc = rc < 0 ? rc : cmd_outs("Licence Apache-2.0. There is no warranty, to the extent permitted by law.\n", err);
	if (rc >= 0 && cmd.verbose > 0) {
		rc = cmd_outf(err, "build        %s, %s\n", SKY_REV, SKY_COMPILER);
		if (rc >= 0 && cmd_prog.describe) {
			cmd_prog.describe();
		}
	}
	return rc;
}

/* ---- --dump-options: for completions/gen.sh and the drift tests ---- */

static const char *const type_names[] = { "end", "head", "table", "flag", "up", "int", "count", "size", "time", "real",
	"text", "file", "dir", "choice", "texts", "call" };

static int dump_row(const struct opt_row *row, const char *sub, bool common, struct sky_err *err)
{
	struct sky_jw *w = cmd_rec("option", err);
	char letter[2] = { row->letter, '\0' };

	sky_jw_kstr(w, "sub", sub);
	sky_jw_kstr(w, "name", row->name);
	sky_jw_kstr(w, "letter", letter);
	sky_jw_kstr(w, "kind", type_names[row->type]);
	sky_jw_kstr(w, "arg", row->arg ? row->arg : "");
	sky_jw_kstr(w, "default", row->def ? row->def : "");
	sky_jw_kstr(w, "ext", row->ext ? row->ext : "");
	sky_jw_kbool(w, "common", common);
	sky_jw_kbool(w, "required", (row->flags & OPT_REQUIRED) != 0);
	sky_jw_kstr(w, "help", row->help);
	return cmd_rec_end(err);
}

static int dump_rows(const struct opt_row *rows, const char *sub, bool common, struct sky_err *err)
{
	int rc = 0;

	for (; rc >= 0 && rows && rows->type != OPT_T_END; rows++) {
		if (rows->type == OPT_T_TABLE) {
			rc = dump_rows(rows->table, sub, common, err);
		} else if (opt_is_option(rows) && !(rows->flags & OPT_HIDDEN)) {
			rc = dump_row(rows, sub, common, err);
		}
	}
	return rc;
}

int help_dump(struct sky_err *err)
{
	const struct cmd_sub *sub;
	struct sky_jw *w = cmd_rec("program", err);
	int rc;

	sky_jw_kstr(w, "name", cmd_prog.name);
	sky_jw_kstr(w, "title", cmd_prog.title);
	rc = cmd_rec_end(err);
	for (sub = cmd_prog.subs; rc >= 0 && sub && sub->name; sub++) {
		w = cmd_rec("sub", err);
		sky_jw_kstr(w, "name", sub->name);
		sky_jw_kstr(w, "title", sub->title);
		rc = cmd_rec_end(err);
	}
	rc = rc < 0 ? rc : dump_rows(opt_common_rows, "", true, err);
	rc = rc < 0 ? rc : dump_rows(cmd_prog.rows, "", false, err);
	for (sub = cmd_prog.subs; rc >= 0 && sub && sub->name; sub++) {
		rc = dump_rows(sub->rows, sub->name, false, err);
	}
	return rc;
}
