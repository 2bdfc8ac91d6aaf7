/* The thin front shared by all programs: start-up, options, messages, product stream, progress, signals, exit status.
 *
 * In: argv, environment, configuration files. Out: exit status, messages on stderr, products on the saved stdout.
 * A program is one file cmd/NAME.c, top to bottom: comment, options, table, static helpers, a run function, and
 *
 *	const struct cmd_prog cmd_prog = {
 *		.name = "skyrl-plot",
 *		.title = "draw metrics",
 *		.usage = "[OPTION]… METRICS.ndjson…",
 *		.example = "skyrl-plot run/metrics.ndjson -o reward.png --key reward/avg_pass_at_1",
 *		.rows = rows,
 *		.run = plot_run,
 *	};
 *
 * It links libcmd.a, which holds main(). run gets the operands (argv[0] is the first one) and returns 0 or a negative
 * enum sky_code with *err filled; main prints the message and exits with −code. Only files of cmd/ print or exit, and
 * they do it through the functions here: nothing writes to fd 1, which points at stderr (a library that prints to
 * stdout must not damage a pipe). None of these functions is for use from several threads at once, but for
 * cmd_stopping, cmd_stop_signal and the messages. */
#ifndef SKY_CMD_CMD_H
#define SKY_CMD_CMD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"
#include "base/json.h"
#include "cmd/opt.h"

#ifdef __cplusplus
extern "C" {
#endif

enum cmd_flags {
	/* A first INT, TERM or HUP only raises a flag: the program looks at cmd_stopping(), saves and returns
	 * SKY_E_STOP. Without it such a signal removes open temps and ends the program at once, by the same signal. */
	CMD_STOP_SOFT = 1u << 0,
	/* SIGPIPE is ignored; a reader that closes stdout ends the run in order. For programs with sockets or state. */
	CMD_NO_SIGPIPE = 1u << 1,
	CMD_NEEDS_ARGS = 1u << 2,       /* without any argument: the short usage, status 2 */
	CMD_STDIN = 1u << 3,            /* reads stdin when there is no operand: refused when that is a terminal */
	CMD_NO_OPERANDS = 1u << 4,      /* operands are an error */
	CMD_RAW_TAIL = 1u << 5,         /* options end at the first operand (skyrl x --y) */
	CMD_SERVER = 1u << 6,           /* an orderly end by TERM or INT is status 0 */
};

/* skyrl-x NAME …: chosen when the first operand, behind common options only, is NAME (a file of that name: ./NAME). */
struct cmd_sub {
	const char *name, *title, *usage, *example;
	const struct opt_row *rows;
	int (*run)(int argc, char **argv, struct sky_err *err);
	unsigned flags;         /* replaces that of the program */
	const struct opt_alias *aliases;        /* replaces those of the program */
};

struct cmd_prog {
	const char *name;       /* "skyrl-pretok" */
	const char *title;      /* one line without capital and stop */
	const char *usage;      /* behind the name; several lines separated by \n, each its own usage */
	const char *example;    /* one shell line */
	const struct opt_row *rows;
	const struct cmd_sub *subs;     /* ends with .name = NULL; NULL: none */
	int (*run)(int argc, char **argv, struct sky_err *err);         /* NULL: a subcommand is required */
	unsigned flags;
	const struct opt_alias *aliases;        /* -c dotted.key=value: ends with .dotted = NULL */
	/* Dotted keys that are no option; SKY_EOF: not mine. May be NULL. */
	int (*dotted)(const char *key, const char *value, struct sky_err *err);
	/* Lines "name  text\n" for --version -v (kernel backends, schemes). May be NULL. */
	void (*describe)(void);
};
extern const struct cmd_prog cmd_prog;

/* Values of the common options. */
struct cmd_common {
	int verbose;            /* -v: 1, -vv: 2 */
	bool quiet;
	int progress, color;    /* 0 auto, 1 always, 2 never */
	double stats_s;         /* --stats: seconds between plain status lines, 0: none */
	/* The following only in programs whose table has the row. */
	bool dry_run, force, json;
	const char *output;
	int64_t threads;        /* never 0 after parsing: the default is what this process may use */
	int64_t seed;
};
extern struct cmd_common cmd;

/* Rows that mean the same everywhere; a program takes those that it honours. */
#define CMD_OPT_DRY_RUN OPT_FLAG('n', "dry-run", &cmd.dry_run, NULL, "say what would be done, and do nothing")
#define CMD_OPT_FORCE OPT_FLAG('f', "force", &cmd.force, NULL, "replace existing output", .flags = OPT_NO_ENV)
#define CMD_OPT_JSON OPT_FLAG(0, "json", &cmd.json, NULL, "records as NDJSON on standard output")
#define CMD_OPT_OUTPUT(arg, help) OPT_FILE('o', "output", &cmd.output, arg, NULL, help, .flags = OPT_NO_ENV | OPT_NO_CONF)
#define CMD_OPT_THREADS OPT_COUNT('j', "threads", &cmd.threads, "N", "0", "threads, 0 for all processors", .min = 0, .max = 512)
#define CMD_OPT_SEED OPT_INT(0, "seed", &cmd.seed, "N", "0", "seed of every random draw")

/* ---- messages: one line, one write, to stderr, prefix "skyrl-x: "; control bytes become '?' ---- */
/* For items of a list that goes on; the final error is returned. */
void cmd_error(const char *fmt, ...) SKY_PRINTF(1, 2);
void cmd_warn(const char *fmt, ...) SKY_PRINTF(1, 2);
void cmd_note(const char *fmt, ...) SKY_PRINTF(1, 2);           /* not with -q */
void cmd_verbose(int level, const char *fmt, ...) SKY_PRINTF(2, 3);     /* with that many -v */
/* May escape sequences go there? fd 1 means the product stream. */
bool cmd_color(int fd);

/* ---- products: the saved stdout ---- */
int cmd_out(const void *p, size_t n, struct sky_err *err) SKY_MUST_CHECK;       /* buffered */
int cmd_outs(const char *s, struct sky_err *err) SKY_MUST_CHECK;
int cmd_outf(struct sky_err *err, const char *fmt, ...) SKY_PRINTF(2, 3) SKY_MUST_CHECK;
int cmd_out_flush(struct sky_err *err) SKY_MUST_CHECK;
int cmd_out_fd(void);           /* for code that writes by itself; call cmd_out_flush before */
bool cmd_out_is_tty(void);
/* Call before binary output: a terminal is refused without --force. */
int cmd_out_binary(struct sky_err *err) SKY_MUST_CHECK;
/* One NDJSON record: cmd_rec opens {"type":TYPE,"v":1, members go through the writer, cmd_rec_end closes and writes it
 * as one line, flushed at once when a reader may be waiting (pipe, terminal). */
struct sky_jw *cmd_rec(const char *type, struct sky_err *err);
int cmd_rec_end(struct sky_err *err) SKY_MUST_CHECK;

/* ---- progress: a line on a terminal, plain lines with --stats, one line on SIGUSR1 ---- */
struct cmd_meter {
	const char *what, *unit;        /* "pretok", "rows" */
	double total;                   /* ≤ 0: unknown */
	double t_start, t_shown, t_stats;
	double done, done0;
	bool shown;                     /* a line stands on the terminal */
};
/* done0: what an earlier run had done already, so that rates are of this run. */
void cmd_meter_start(struct cmd_meter *m, const char *what, const char *unit, double total, double done0);
/* Cheap: shows something at most once a second, nothing in the first. extra is printf-style text behind the rate. */
void cmd_meter(struct cmd_meter *m, double done, const char *extra, ...) SKY_PRINTF(3, 4);
void cmd_meter_stop(struct cmd_meter *m);
void cmd_meter_clear(void);     /* takes a standing line away; messages do it by themselves */

/* ---- signals ---- */
bool cmd_stopping(void);        /* a stop was asked for (CMD_STOP_SOFT) */
int cmd_stop_signal(void);      /* which, 0: none */
int cmd_sig_fd(void);           /* readable when a signal came: for poll */
bool cmd_sig_usr2(void);        /* SIGUSR2 since the last call: checkpoint now, reload */
/* SKY_E_STOP with "stopped by SIGINT, WHAT"; main then dies by that signal. */
int cmd_stop_err(struct sky_err *err, const char *what) SKY_MUST_CHECK;

const char *cmd_name(void);     /* "skyrl-pretok" */
double cmd_since_start(void);   /* seconds */

#ifdef __cplusplus
}
#endif
#endif
