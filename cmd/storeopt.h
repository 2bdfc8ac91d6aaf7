/* Options of stores, the same in every program that reads or writes one: OPT_TABLE(cmd_store_rows) in its table, and
 * cmd_store_opt() when it opens the store. */
#ifndef SKY_CMD_STOREOPT_H
#define SKY_CMD_STOREOPT_H

#include "cmd/opt.h"
#include "store/store.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct opt_row cmd_store_rows[];

/* What the options say; borrowed for the life of the program. Also lets waits for a server end when the program is asked
 * to stop (cmd_stopping). */
const struct sky_store_opt *cmd_store_opt(void);

#ifdef __cplusplus
}
#endif
#endif
