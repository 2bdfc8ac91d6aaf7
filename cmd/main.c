/* The one main: start-up in a fixed order, the run, the end. */
#include "cmd/cmd_int.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"
#include "base/num.h"
#include "base/pool.h"
#include "base/time.h"

struct cmd_common cmd;

static double t_start;

const char *cmd_name(void)
{
	return cmd_prog.name;
}

double cmd_since_start(void)
{
	return sky_now() - t_start;
}

/* A closed standard descriptor would be taken by the next open, and messages would land in a data file. */
static void open_standard(void)
{
	int fd;

	for (fd = 0; fd < 3; fd++) {
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
		    open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY) != fd) {
			_exit(1);
		}
	}
}

/* --version, --help and the like; SKY_EOF when none was asked for. */
static int information(int argc, unsigned flags, struct sky_err *err)
{
	if (opt_set.help) {
		return help_print(err);
	}
	if (opt_set.version) {
		return help_version(err);
	}
	if (opt_set.dump) {
		return help_dump(err);
	}
	if (opt_set.print_config) {
		return conf_print(err);
	}
	if ((flags & CMD_NEEDS_ARGS) && argc == (opt_set.sub ? 2 : 1)) {
		return help_short(err);
	}
	if ((flags & CMD_STDIN) && opt_set.n_operands == 0 && isatty(0)) {
		return help_short(err);
	}
	return SKY_EOF;
}

static int check_operands(unsigned flags, struct sky_err *err)
{
	const char *names[64];
	const char *near = NULL;
	int i = 0;

	if (!opt_set.sub && !cmd_prog.run) {
		if (opt_set.n_operands == 0) {
			return help_short(err);
		}
		for (; i < 63 && cmd_prog.subs[i].name; i++) {
			names[i] = cmd_prog.subs[i].name;
		}
		names[i] = NULL;
		near = opt_nearest(opt_set.operands[0], names);
		return sky_fail(err, SKY_E_USAGE, "unknown command %s%s%s%s (--help lists the commands)",
				opt_set.operands[0], near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
	}
	if ((flags & CMD_NO_OPERANDS) && opt_set.n_operands > 0) {
		return sky_fail(err, SKY_E_USAGE, "unexpected operand %s", opt_set.operands[0]);
	}
	return 0;
}

static int run(int argc, unsigned flags, struct sky_err *err)
{
	int rc = information(argc, flags, err);

	if (rc != SKY_EOF) {
		return rc;
	}
	rc = check_operands(flags, err);
	if (rc < 0) {
		return rc;
	}
	if (cmd.threads <= 0) {
		cmd.threads = sky_cpu_count();
	}
	cmd_sig_init(flags);
	rc = (opt_set.sub ? opt_set.sub->run : cmd_prog.run)(opt_set.n_operands, opt_set.operands, err);
	return rc > 0 ? 0 : rc;
}

/* The failure as a record as well, where records were asked for. */
static void error_record(int rc, const struct sky_err *err)
{
	struct sky_err late = { 0, 0, "" };
	struct sky_jw *w = cmd_rec("error", &late);

	sky_jw_ki64(w, "code", -rc);
	sky_jw_kstr(w, "op", opt_set.sub ? opt_set.sub->name : cmd_prog.name);
	sky_jw_kstr(w, "error", err->msg);
	if (cmd_rec_end(&late) < 0 && !cmd_out_broken()) {
		cmd_error("%s", late.msg);
	}
}

/* Last line with -v: what ran, and what it took. */
static void account(int argc, char **argv)
{
	char line[1024], t[32], cpu[32], mem[32];
	struct rusage ru;
	size_t n = 0;
	int i;

	if (cmd.verbose < 1 || opt_set.version || getrusage(RUSAGE_SELF, &ru) < 0) {
		return;
	}
	for (i = 1, line[0] = '\0'; i < argc && n < sizeof(line); i++) {
		n += (size_t)snprintf(line + n, sizeof(line) - n, " %s", argv[i]);
	}
	sky_fmt_duration(t, sizeof(t), cmd_since_start());
	sky_fmt_duration(cpu, sizeof(cpu), (double)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) +
	                 1e-6 * (double)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec));
	sky_fmt_size(mem, sizeof(mem), (uint64_t)ru.ru_maxrss * 1024);
	cmd_verbose(1, "version %s, command:%s; %s elapsed, %s of CPU, %s of memory", PACKAGE_VERSION, line, t, cpu,
		    mem);
}

int main(int argc, char **argv)
{
	struct sky_err err = { 0, 0, "" }, late = { 0, 0, "" };
	unsigned flags;
	int rc, stop;

	open_standard();
	if (cmd_out_init() < 0) {
		cmd_error("standard output: %s", strerror(errno));
		return 1;
	}
	t_start = sky_now();
	setlocale(LC_CTYPE, "");        /* numbers stay in the C locale */
	rc = opt_parse(argc, argv, &err);
	flags = opt_set.sub ? opt_set.sub->flags : cmd_prog.flags;
	cmd_sig_pipe(flags);
	rc = rc < 0 ? rc : run(argc, flags, &err);
	stop = cmd_stop_signal();

	if (rc < 0 && err.msg[0] && !cmd_out_broken()) {
		cmd_error("%s", err.msg);
		if (cmd.json) {
			error_record(rc, &err);
		}
	}
	if (cmd_out_finish(&late) < 0 && !cmd_out_broken()) {
		cmd_error("%s", late.msg);
		rc = rc < 0 ? rc : late.code;
	}
	sky_out_unlink_all();
	account(argc, argv);
	if (cmd_out_broken()) {
		cmd_sig_reraise(SIGPIPE);
	}
	if (stop && !(flags & CMD_SERVER)) {
		cmd_sig_reraise(stop);
	}
	return rc < 0 ? -rc : 0;
}
