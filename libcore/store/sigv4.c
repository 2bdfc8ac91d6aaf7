/* store: signature version 4. Canonical request -> string to sign -> HMAC chain -> Authorization field. The rules are
 * those of the S3 reference ("Authenticating Requests: Using the Authorization Header"): the path is encoded once and
 * not normalised, the query is sorted by encoded name and value, inner runs of spaces in header values shrink to one.
 */
#include <strings.h>
#include "store/sigv4_int.h"

const struct sky_sig_style sky_sig_aws = {
	"AWS4-HMAC-SHA256", "AWS4", "x-amz-date", "x-amz-content-sha256", "x-amz-security-token", "aws4_request",
};
const struct sky_sig_style sky_sig_goog = {
	"GOOG4-HMAC-SHA256", "GOOG4", "x-goog-date", "x-goog-content-sha256", NULL, "goog4_request",
};

static int is_unreserved(unsigned char c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
	       c == '_' || c == '~';
}

int sky_uri_encode(struct sky_buf *out, const char *s, size_t n, int keep_slash, struct sky_err *err)
{
	static const char hex[] = "0123456789ABCDEF";

	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)s[i];
		char enc[3] = { '%', hex[c >> 4], hex[c & 15] };
		int plain = is_unreserved(c) || (c == '/' && keep_slash);
		int rc = plain ? sky_buf_addc(out, (char)c, err) : sky_buf_add(out, enc, 3, err);

		if (rc < 0) {
			return rc;
		}
	}
	return 0;
}

static int hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' :
	       c >= 'A' && c <= 'F' ? c - 'A' + 10 :
	       c >= 'a' && c <= 'f' ? c - 'a' + 10 :
	                              -1;
}

int sky_uri_decode(struct sky_buf *out, const char *s, size_t n, struct sky_err *err)
{
	for (size_t i = 0; i < n; i++) {
		char c = s[i];
		int rc;

		if (c == '%') {
			if (n - i < 3 || hex_digit(s[i + 1]) < 0 || hex_digit(s[i + 2]) < 0) {
				return sky_fail(err, SKY_E_DATA, "bad percent sequence in '%.*s'",
				                (int)(n < 200 ? n : 200), s);
			}
			c = (char)(hex_digit(s[i + 1]) * 16 + hex_digit(s[i + 2]));
			i += 2;
		} else if (c == '+') {
			c = ' ';
		}
		if ((rc = sky_buf_addc(out, c, err)) < 0) {
			return rc;
		}
	}
	return 0;
}

/* Order of encoded pairs: by name, then by value. '=' ends a name, so it ranks below every byte of one. */
static int by_pair(const void *a, const void *b)
{
	const unsigned char *p = *(unsigned char *const *)a, *q = *(unsigned char *const *)b;

	while (*p && *p == *q) {
		p++;
		q++;
	}
	return (*p == '=' ? 1 : *p) - (*q == '=' ? 1 : *q);
}

#define MAX_PAIRS 16

int sky_query_build(struct sky_buf *out, const char *const pairs[][2], int n, struct sky_err *err)
{
	char *text[MAX_PAIRS] = { NULL };
	int n_text = 0, rc = n > MAX_PAIRS ? sky_fail(err, SKY_E_LIMIT, "query of %d pairs", n) : 0;

	for (int i = 0; rc == 0 && i < n; i++) {
		struct sky_buf b = SKY_BUF_INIT(1u << 20);

		if (!pairs[i][1]) {
			continue;
		}
		rc = sky_uri_encode(&b, pairs[i][0], strlen(pairs[i][0]), 0, err);
		rc = rc < 0 ? rc : sky_buf_addc(&b, '=', err);
		rc = rc < 0 ? rc : sky_uri_encode(&b, pairs[i][1], strlen(pairs[i][1]), 0, err);
		if (rc < 0) {
			sky_buf_release(&b);
		} else {
			text[n_text++] = sky_buf_take(&b);
		}
	}
	qsort(text, (size_t)n_text, sizeof(text[0]), by_pair);
	for (int i = 0; rc == 0 && i < n_text; i++) {
		rc = i > 0 ? sky_buf_addc(out, '&', err) : 0;
		rc = rc < 0 ? rc : sky_buf_adds(out, text[i], err);
	}
	for (int i = 0; i < n_text; i++) {
		free(text[i]);
	}
	return rc;
}

void sky_sig_date(int64_t when, char out[17])
{
	int f[6];

	sky_utc_fields(when, f);
	snprintf(out, 17, "%04u%02u%02uT%02u%02u%02uZ", (unsigned)f[0] % 10000, (unsigned)f[1] % 100,
	         (unsigned)f[2] % 100, (unsigned)f[3] % 100, (unsigned)f[4] % 100, (unsigned)f[5] % 100);
}

static int trimmed(struct sky_buf *out, const char *v, struct sky_err *err)
{
	int space = 0, begun = 0, rc = 0;

	for (; *v && rc == 0; v++) {
		if (*v == ' ' || *v == '\t') {
			space = begun;
			continue;
		}
		rc = space ? sky_buf_addc(out, ' ', err) : 0;
		rc = rc < 0 ? rc : sky_buf_addc(out, *v, err);
		space = 0;
		begun = 1;
	}
	return rc;
}

static int add_lower(struct sky_buf *out, const char *s, struct sky_err *err)
{
	int rc = 0;

	for (; *s && rc == 0; s++) {
		rc = sky_buf_addc(out, (char)(*s >= 'A' && *s <= 'Z' ? *s + 32 : *s), err);
	}
	return rc;
}

int sky_sig_canonical(const struct sky_sig *g, struct sky_buf *out, struct sky_buf *names, struct sky_err *err)
{
	int order[SKY_HTTP_HEADS];
	int n = g->heads->n, rc;
	size_t names_at = names->n;

	for (int i = 0; i < n; i++) {           /* insertion sort: a dozen names */
		int k = i;

		while (k > 0 && strcasecmp(g->heads->v[order[k - 1]].name, g->heads->v[i].name) > 0) {
			order[k] = order[k - 1];
			k--;
		}
		order[k] = i;
	}
	rc = sky_buf_addf(out, err, "%s\n%s\n%s\n", g->method, g->path, g->query);
	for (int i = 0; rc == 0 && i < n; i++) {
		rc = add_lower(out, g->heads->v[order[i]].name, err);
		rc = rc < 0 ? rc : sky_buf_addc(out, ':', err);
		rc = rc < 0 ? rc : trimmed(out, g->heads->v[order[i]].value, err);
		rc = rc < 0 ? rc : sky_buf_addc(out, '\n', err);
		rc = rc < 0 || i == 0 ? rc : sky_buf_addc(names, ';', err);
		rc = rc < 0 ? rc : add_lower(names, g->heads->v[order[i]].name, err);
	}
	return rc < 0 ? rc : sky_buf_addf(out, err, "\n%s\n%s", names->ptr ? names->ptr + names_at : "", g->hash);
}

void sky_sig_key(const struct sky_sig *g, uint8_t key[32])
{
	char date[17], first[512];
	uint8_t a[32], b[32];
	int n;

	sky_sig_date(g->when, date);
	n = snprintf(first, sizeof(first), "%s%s", g->style->key_prefix, g->secret);
	n = n < (int)sizeof(first) ? n : (int)sizeof(first) - 1;
	sky_hmac_sha256(first, (size_t)n, date, 8, a);
	sky_hmac_sha256(a, 32, g->region, strlen(g->region), b);
	sky_hmac_sha256(b, 32, g->service, strlen(g->service), a);
	sky_hmac_sha256(a, 32, g->style->terminator, strlen(g->style->terminator), key);
}

int sky_sig_sign(const struct sky_sig *g, struct sky_buf *authorization, char sig[65], struct sky_err *err)
{
	struct sky_buf canon = SKY_BUF_INIT(1u << 20), names = SKY_BUF_INIT(1u << 16), text = SKY_BUF_INIT(1u << 16);
	uint8_t hash[32], key[32];
	char hex[65], date[17];
	int rc = sky_sig_canonical(g, &canon, &names, err);

	if (rc == 0) {
		sky_sig_date(g->when, date);
		sky_sha256(canon.ptr, canon.n, hash);
		sky_hex(hash, 32, hex);
		rc = sky_buf_addf(&text, err, "%s\n%s\n%.8s/%s/%s/%s\n%s", g->style->algorithm, date, date, g->region,
		                  g->service, g->style->terminator, hex);
	}
	if (rc == 0) {
		sky_sig_key(g, key);
		sky_hmac_sha256(key, 32, text.ptr, text.n, hash);
		sky_hex(hash, 32, hex);
		rc = sky_buf_addf(authorization, err,
		                  "%s Credential=%s/%.8s/%s/%s/%s, SignedHeaders=%s, Signature=%s",
		                  g->style->algorithm, g->access, date, g->region, g->service, g->style->terminator,
		                  names.ptr, hex);
	}
	if (rc == 0 && sig) {
		memcpy(sig, hex, 65);
	}
	sky_buf_release(&canon);
	sky_buf_release(&names);
	sky_buf_release(&text);
	return rc;
}
