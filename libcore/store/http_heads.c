/* store: header fields of requests and answers, and the life of a try. */
#include "store/http_int.h"

#define HEAD_MAX (256u << 10)

int sky_heads_add(struct sky_heads *h, struct sky_err *err, const char *name, const char *fmt, ...)
{
	char *value = NULL;
	va_list ap;
	int n;

	if (h->n == SKY_HTTP_HEADS) {
		return sky_fail(err, SKY_E_LIMIT, "more than %d header fields", SKY_HTTP_HEADS);
	}
	va_start(ap, fmt);
	n = vasprintf(&value, fmt, ap);
	va_end(ap);
	if (n < 0) {
		return sky_fail_mem(err, "header field %s", name);
	}
	h->v[h->n].name = name;
	h->v[h->n++].value = value;
	return 0;
}

void sky_heads_release(struct sky_heads *h)
{
	for (int i = 0; i < h->n; i++) {
		free(h->v[i].value);
	}
	h->n = 0;
}

void sky_try_init(struct sky_try *t)
{
	memset(t, 0, sizeof(*t));
	t->fd = -1;
	sky_buf_init(&t->answer, SKY_HTTP_ANSWER_MAX);
	sky_buf_init(&t->head, HEAD_MAX);
}

void sky_try_release(struct sky_try *t)
{
	free(t->url);
	sky_heads_release(&t->heads);
	sky_buf_release(&t->answer);
	sky_buf_release(&t->head);
	sky_try_init(t);
}

char *sky_try_head(const struct sky_try *t, const char *name, char *out, size_t cap)
{
	size_t n_name = strlen(name);

	for (const char *p = t->head.ptr, *end; p && *p; p = end + 1) {
		end = strchrnul(p, '\n');
		if ((size_t)(end - p) > n_name && p[n_name] == ':' && strncmp(p, name, n_name) == 0) {
			const char *v = p + n_name + 1;
			size_t n;

			v += *v == ' ';
			n = (size_t)(end - v);
			n = n < cap - 1 ? n : cap - 1;
			memcpy(out, v, n);
			out[n] = '\0';
			return out;
		}
		if (!*end) {
			break;
		}
	}
	return NULL;
}
