/* store, inside: a small reader for the XML that object stores answer. */
#ifndef SKY_STORE_XML_INT_H
#define SKY_STORE_XML_INT_H

#include "store/store_int.h"

#define SKY_MAX_XML_DEPTH       16
#define SKY_MAX_XML_TEXT        (64u << 10)

/* Calls on_end at the end of every element with its path from the root ("Error/Code") and the text that stood behind
 * its last start tag, entities resolved. Namespace prefixes, attributes, comments and processing instructions are
 * passed over; a DOCTYPE, bad nesting, or anything over the limits is SKY_E_DATA. Leading white space is fine
 * (keep-alive). */
typedef int (*sky_xml_end)(void *ctx, const char *path, const char *text, struct sky_err *err);
int sky_xml_walk(const char *p, size_t n, sky_xml_end on_end, void *ctx, struct sky_err *err) SKY_MUST_CHECK;
/* Text as XML wants it between tags. */
int sky_xml_escape(struct sky_buf *out, const char *s, struct sky_err *err) SKY_MUST_CHECK;

#endif
