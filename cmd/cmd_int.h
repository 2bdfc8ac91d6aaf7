/* Private between the files of the front; programs do not include it. */
#ifndef SKY_CMD_INT_H
#define SKY_CMD_INT_H

#include "base/buf.h"
#include "cmd/cmd.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How strong a value is: a stronger one replaces a weaker one. */
enum opt_level { OPT_L_NONE, OPT_L_DEFAULT, OPT_L_SYSTEM, OPT_L_USER, OPT_L_FILE, OPT_L_ENV, OPT_L_OPTION };

/* One option of the active table with what was set. */
struct opt_slot {
	const struct opt_row *row;
	enum opt_level level;
	char origin[300];
	const char *text;       /* as given; owned by the front */
	int64_t cap;            /* of a list */
};

struct opt_set {
	struct opt_slot *v;     /* HEAD rows included, TABLE rows resolved */
	int n;
	const struct cmd_sub *sub;      /* NULL: the program itself */
	char **operands;
	int n_operands;
	bool help, version, print_config, dump;
};
extern struct opt_set opt_set;

/* opt.c */
int opt_parse(int argc, char **argv, struct sky_err *err) SKY_MUST_CHECK;
int opt_find(const char *name);                         /* slot or -1 */
int opt_set_text(int slot, const char *value, enum opt_level level, const char *origin, struct sky_err *err) SKY_MUST_CHECK;
int opt_set_dotted(const char *pair, enum opt_level level, const char *origin, struct sky_err *err) SKY_MUST_CHECK;
bool opt_is_option(const struct opt_row *row);          /* neither HEAD, TABLE nor END */
void opt_env_name(const char *name, char *out, size_t cap);     /* SKYRL_MAX_LENGTH */
bool opt_known_anywhere(const char *name);              /* in the program's table or one of a subcommand */
char *opt_keep(const char *s, size_t n);                /* a copy that lives as long as the program; NULL: no memory */
extern const struct opt_row opt_common_rows[];

/* conf.c */
int conf_load(const char *config, struct sky_err *err) SKY_MUST_CHECK;  /* files, then environment */
int conf_print(struct sky_err *err) SKY_MUST_CHECK;

/* help.c */
int help_print(struct sky_err *err) SKY_MUST_CHECK;
int help_short(struct sky_err *err) SKY_MUST_CHECK;     /* usage in at most 12 lines, to stderr */
int help_version(struct sky_err *err) SKY_MUST_CHECK;
int help_dump(struct sky_err *err) SKY_MUST_CHECK;      /* --dump-options */

/* out.c */
int cmd_out_init(void);         /* 0 or -1 */
int cmd_out_finish(struct sky_err *err);        /* flush, close, checked */
bool cmd_out_broken(void);      /* the reader closed the pipe */

/* msg.c: text of one message to stderr in one write. */
void cmd_say(const char *kind, const char *text);

/* sig.c */
void cmd_sig_pipe(unsigned flags);
void cmd_sig_init(unsigned flags);
bool cmd_sig_usr1(void);        /* SIGUSR1 since the last call */
void cmd_sig_reraise(int sig);  /* dies by it unless it is ignored */

#ifdef __cplusplus
}
#endif
#endif
