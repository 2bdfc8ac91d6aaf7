/* base: what every other folder stands on; layer 0.
 *
 * In: nothing of ours. Out: error values, buffers, arenas, numbers, files published atomically, mappings, locks,
 * hashes, JSON, NDJSON, random numbers, threads, child processes, clocks, element types.
 * Nothing here prints, exits or installs a signal handler. Every function that can fail returns 0 or a negative
 * enum sky_code and fills the caller's struct sky_err; memory is the caller's unless a comment says otherwise. */
#ifndef SKY_BASE_BASE_H
#define SKY_BASE_BASE_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/dtype.h"
#include "base/err.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/map.h"
#include "base/ndjson.h"
#include "base/num.h"
#include "base/pool.h"
#include "base/proc.h"
#include "base/rng.h"
#include "base/time.h"

#endif
