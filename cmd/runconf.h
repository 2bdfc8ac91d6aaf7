/* Run directories of long programs: the options that a run keeps in its config.json, and who may write there. */
#ifndef SKY_CMD_RUNCONF_H
#define SKY_CMD_RUNCONF_H

#include "base/lock.h"
#include "cmd/opt.h"

#ifdef __cplusplus
extern "C" {
#endif

enum runconf_type { RUNCONF_END, RUNCONF_TEXT, RUNCONF_TEXTS, RUNCONF_INT, RUNCONF_REAL, RUNCONF_FLAG, RUNCONF_CHOICE };

/* name: that of the option; p: its variable, of the type that the option has. */
struct runconf_row {
	const char *name;
	enum runconf_type type;
	void *p;
};

/* Writes every value as {"option":value}. */
int runconf_save(const struct runconf_row *rows, const char *path, struct sky_err *err) SKY_MUST_CHECK;
/* Sets every value that the command line did not give. Strings live as long as the program. */
int runconf_load(const struct runconf_row *rows, const char *path, struct sky_err *err) SKY_MUST_CHECK;
/* Appends operands to a list option. */
int runconf_append(struct opt_list *l, int argc, char **argv, struct sky_err *err) SKY_MUST_CHECK;
/* Takes the lock of the run directory (that of --resume, else --output, which is made). A new run refuses a directory that
 * already holds `mark`, unless --force. */
int runconf_open_dir(struct sky_lock *lock, const char *resume, const char *mark, struct sky_err *err) SKY_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
