/* Choice of the kernel table: --device. For programs that compute; they link $(KERNELS) and $(KN_LIBS) as well. */
#ifndef SKY_CMD_DEV_H
#define SKY_CMD_DEV_H

#include "base/err.h"
#include "cmd/opt.h"
#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --device: put OPT_TABLE(cmd_dev_rows) into the program's table, beside CMD_OPT_THREADS. */
extern const struct opt_row cmd_dev_rows[];

struct cmd_dev {
	const struct kn_ops *ops;       /* passed down to libcore, which has no link-time need of any backend */
	kn_dev *dev;                    /* owned */
};

/* Opens what --device and --threads say. Where the cpu backend cannot run, ref is taken with a note. */
int cmd_dev_open(struct cmd_dev *d, struct sky_err *err) SKY_MUST_CHECK;
void cmd_dev_close(struct cmd_dev *d);  /* safe on a zeroed struct */
/* .describe of programs that compute: backends for --version -v. */
void cmd_dev_describe(void);

#ifdef __cplusplus
}
#endif
#endif
