/* For tests: a program with every kind of option, subcommands, records, progress and a soft stop, on the front of
 * cmd/. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/cmd.h"

static struct {
	bool flag, on;
	int64_t integer, count;
	uint64_t size;
	double time, real;
	const char *text, *secret, *need;
	int choice;
	struct opt_list list;
	int64_t called;
} o;

static int on_call(const char *value, void *p, struct sky_err *err)
{
	if (strcmp(value, "bad") == 0) {
		return sky_fail(err, SKY_E_USAGE, "a bad value");
	}
	++*(int64_t *)p;
	return 0;
}

static const struct opt_row shared[] = {
	OPT_TEXT(0, "shared", &o.text, "TEXT", NULL, "of several tables"),
	OPT_END
};

static const struct opt_row rows[] = {
	OPT_HEAD("Kinds"),
	OPT_FLAG(0, "flag", &o.flag, NULL, "off unless asked for"),
	OPT_FLAG(0, "on", &o.on, "yes", "on unless forbidden"),
	OPT_INT(0, "integer", &o.integer, "N", "-5", "may be negative", .min = -10, .max = 10),
	OPT_COUNT('n', "count", &o.count, "N", "1k", "decimal", .min = 1),
	OPT_SIZE(0, "size", &o.size, "BYTES", "64MiB", "of 1024"),
	OPT_TIME(0, "time", &o.time, "DURATION", "90s", "seconds"),
	OPT_REAL(0, "real", &o.real, "X", "1e-5", "a number", .min = 0, .max = 1),
	OPT_CHOICE(0, "choice", &o.choice, "red|green|blue", "green", "one of them"),
	OPT_TEXTS('l', "list", &o.list, "TEXT", "may be repeated"),
	OPT_TEXT(0, "secret", &o.secret, "TEXT", NULL, "never shown", .flags = OPT_SECRET),
	OPT_CALL(0, "call", on_call, &o.called, "WORD", "calls a function"),
	OPT_TABLE(shared),
	CMD_OPT_THREADS, CMD_OPT_JSON, CMD_OPT_FORCE, CMD_OPT_SEED,
	OPT_END
};

static const struct opt_row sub_rows[] = {
	OPT_TEXT(0, "need", &o.need, "TEXT", NULL, "of the subcommand", .flags = OPT_REQUIRED),
	OPT_TABLE(shared),
	CMD_OPT_JSON,
	OPT_END
};

static int front_run(int argc, char **argv, struct sky_err *err)
{
	int64_t i;
	int rc;

	printf("noise of a library on stdout\n");
	fflush(stdout);
	rc = cmd_outf(err,
		      "flag %d on %d integer %lld count %lld size %llu time %g real %g choice %d list %lld called %lld "
		      "threads %d\n",
		      o.flag, o.on, (long long)o.integer, (long long)o.count, (unsigned long long)o.size, o.time,
		      o.real, o.choice, (long long)o.list.n, (long long)o.called, cmd.threads > 0);
	for (i = 0; rc >= 0 && i < o.list.n; i++) {
		rc = cmd_outf(err, "item %s\n", o.list.v[i]);
	}
	for (i = 0; rc >= 0 && i < argc; i++) {
		rc = cmd_outf(err, "operand %s\n", argv[i]);
	}
	return rc;
}

/* Counts to a second argument, a tick each 50 ms; a stop is saved. */
static int loop_run(int argc, char **argv, struct sky_err *err)
{
	int64_t i, n = argc > 0 ? strtoll(argv[0], NULL, 10) : 20;
	struct cmd_meter m;

	cmd_meter_start(&m, "loop", "ticks", (double)n, 0);
	for (i = 0; i < n && !cmd_stopping(); i++) {
		cmd_meter(&m, (double)i, "extra %s", "text");
		if (i == 0) {
			cmd_note("started");
		}
		usleep(50000);
	}
	cmd_meter_stop(&m);
	return cmd_stopping() ? cmd_stop_err(err, "state saved") : cmd_outs("done\n", err);
}

static int rec_run(int argc, char **argv, struct sky_err *err)
{
	int64_t i, n = argc > 0 ? strtoll(argv[0], NULL, 10) : 2;
	int rc = 0;

	for (i = 0; rc >= 0 && i < n; i++) {
		struct sky_jw *w = cmd_rec("tick", err);

		sky_jw_ki64(w, "i", i);
		sky_jw_kstr(w, "text", "a\"b\nc");
		rc = cmd_rec_end(err);
	}
	return rc;
}

static int fail_run(int argc, char **argv, struct sky_err *err)
{
	return sky_fail(err, argc > 0 ? -(int)strtol(argv[0], NULL, 10) : SKY_E_DATA, "%s: broken on purpose", o.need);
}

static const struct opt_alias aliases[] = {
	{ "trainer.algorithm.eps", "real" },
	{ "trainer.seed", "seed" },
	{ NULL, NULL }
};

static const struct cmd_sub subs[] = {
	{ .name = "loop", .title = "count slowly", .usage = "[N]", .rows = shared, .run = loop_run, .flags = CMD_STOP_SOFT },
	{ .name = "rec", .title = "print records", .usage = "[N]", .rows = shared, .run = rec_run, .flags = CMD_NO_SIGPIPE },
	{ .name = "fail", .title = "fail with a status", .usage = "--need TEXT [STATUS]", .rows = sub_rows, .run = fail_run },
	{ .name = NULL }
};

const struct cmd_prog cmd_prog = {
	.name = "frontprog",
	.title = "a program of the tests",
	.usage = "[OPTION]… [OPERAND]…\nSUBCOMMAND …",
	.rows = rows,
	.subs = subs,
	.run = front_run,
	.aliases = aliases,
};
